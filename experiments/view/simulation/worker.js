// The simulation, in a thread of its own: Python, the daemons, and the pace of simulated time.
import {loadPyodide} from "./pyodide/pyodide.mjs";

const FRAME_MS = 33;
const MOST_FRAME_MS = 100;  // of this page's time that one frame makes up for
const BUDGET_MS = 60;  // of computing in a frame
const SLICES = 8;  // of a frame, after each of which the budget is looked at
const CHANGES = ["fail", "restore", "degrade", "impair", "stop", "restart", "power"];
const [HIDDEN, URGENT, ALL] = [0, 1, 2];
const FEW_NODES = 60;  // whose packets can all be shown at the pace of real time

let session = null;
let nodes = 0;
let nowUs = 0;
let pace = 1;
let running = false;
let actions = [];  // [µs, request] that are still to come, by time
let lastMs = 0;
let events = [];

async function start({topology, scheme, seed, past, nodeCount}) {
  const [pyodide, code] = await Promise.all([
    loadPyodide({indexURL: "./pyodide/"}),
    fetch("./weft.zip").then(response => response.arrayBuffer()),
  ]);
  pyodide.unpackArchive(code, "zip");
  const bytes = Uint8Array.from(atob(topology), letter => letter.charCodeAt(0));
  const network = pyodide.pyimport("pickle").loads(pyodide.toPy(bytes));
  const random = pyodide.pyimport("random").Random(seed);
  session = pyodide.pyimport("weft.daemons.simulator.viewer_session").ViewerSession(network, scheme, random);
  actions = past;
  nodes = nodeCount;
  run(0, HIDDEN);
  report();
  postMessage({ready: true});
  setInterval(frame, FRAME_MS);
}

// Runs until a time; the page gets the events when report() is called.
function run(untilUs, packets) {
  events.push(...JSON.parse(session.run(untilUs, packets)));
  nowUs = untilUs;
}

function report() {
  postMessage({events, nowUs});
  events = [];
}

// Runs until a time, with the actions that were recorded for the time between.
function runWithActions(untilUs, packets) {
  while (actions.length && actions[0][0] <= untilUs) {
    const [us, request] = actions.shift();
    if (us > nowUs) run(us, packets);
    const reply = JSON.parse(session.do(JSON.stringify(request)));
    if (reply.error) postMessage({error: reply.error});
    run(nowUs, packets);
  }
  run(untilUs, packets);
}

function frame() {
  const ms = performance.now();
  const passedMs = Math.min(ms - lastMs, MOST_FRAME_MS);
  lastMs = ms;
  if (!running) return;
  const sliceUs = Math.max(1, Math.round(1000 * passedMs * pace / SLICES));
  const packets = nodes * pace <= FEW_NODES ? ALL : pace <= 1 ? URGENT : HIDDEN;
  for (let slice = 0; slice < SLICES && performance.now() - ms < BUDGET_MS; slice++) runWithActions(nowUs + sliceUs, packets);
  report();
}

function answer({id, request}) {
  const reply = JSON.parse(session.do(JSON.stringify(request)));
  const recorded = CHANGES.includes(request.do) && !reply.error;
  if (recorded) {
    run(nowUs, HIDDEN);
    report();
  }
  postMessage({id, reply, recorded: recorded ? [nowUs, request] : null});
}

onmessage = ({data}) => {
  if (data.start) start(data.start).catch(error => postMessage({fatal: String(error.message ?? error).trim().split("\n").at(-1)}));
  if (data.pace !== undefined) pace = data.pace;
  if (data.running !== undefined) running = data.running;
  if (data.stepUs) {
    runWithActions(nowUs + data.stepUs, ALL);
    report();
  }
  if (data.request) answer(data);
};
