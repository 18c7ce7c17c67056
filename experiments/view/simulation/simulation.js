// The page of a simulation: choices in the address, a worker that computes, and the view that both pages share.
import {choicesOf, textOf} from "./address.js";
import {notice} from "./notice.js";
import {View} from "./view.js";

const PACES = [[1e-4, "1/10000"], [1e-3, "1/1000"], [.01, "1/100"], [.1, "1/10"], [1, "real time"], [5, "5 times"], [20, "20 times"], [100, "as fast as it can"]];
const WINDOW_S = 20;  // of the time line, at the pace of real time
const STEP_US = 1000;
const byId = id => document.getElementById(id);

const families = await (await fetch("networks.json")).json();
const {choices, network, past, wrong} = choicesOf(location.hash, families);
if (wrong) notice(wrong, {stays: true});

function writeAddress() {
  const parts = Object.entries(choices).filter(([, value]) => value !== "").map(([key, value]) => `${key}=${encodeURI(value)}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
}

function startAgain(changes) {
  Object.assign(choices, {do: "", path: "", ...changes});
  writeAddress();
  location.reload();
}

function fillChoices() {
  const family = families.find(({networks}) => networks.includes(network));
  const option = (text, value, chosen) => new Option(text, value, chosen, chosen);
  byId("family").replaceChildren(...families.map(({name, networks}) => option(name, networks[0].spec, name === family.name)));
  byId("size").replaceChildren(...family.networks.map(({spec, servers, nodes}) =>
    option(`${spec.split(":")[1]}: ${servers} servers, ${nodes} nodes`, spec, spec === choices.net)));
  byId("scheme").replaceChildren(...[...new Set([...network.schemes, choices.scheme])].map(name => option(name, name, name === choices.scheme)));
  byId("pace").replaceChildren(...PACES.map(([value, text]) => option(text, value, String(value) === choices.pace)));
  byId("seed").value = choices.seed;
}

// Simulated time between two messages of the worker goes on at the chosen pace.
let nowUs = 0;
const clock = {
  now: () => nowUs / 1e6,
  windowS: () => Math.max(.05, WINDOW_S * Math.min(1, Number(choices.pace))),
  label(seconds, {coarse = false} = {}) {
    const digits = coarse && this.windowS() > 2 ? 1 : coarse ? 3 : 6;
    return `${seconds.toFixed(digits)} s`;
  },
};

const replies = new Map();
let lastId = 0;
function post(request, {quiet = false} = {}) {
  return new Promise(resolve => {
    const id = ++lastId;
    replies.set(id, reply => {
      if (reply.error && !quiet) notice(reply.error);
      resolve(reply);
    });
    worker.postMessage({id, request});
  });
}

function record(action) {
  choices.do = [choices.do, textOf(action)].filter(Boolean).join(";");
  writeAddress();
}

let running = true;
function setRunning(value) {
  running = value;
  byId("pause").textContent = running ? "pause" : "go on";
  worker.postMessage({running});
}

const ready = () => {
  byId("loading").hidden = true;
  if (choices.path) {
    const [src, dst] = choices.path.split("~");
    view.select(src);
    view.select(dst);
  }
  view.onpath = path => {
    choices.path = path ? `${path.src}~${path.dst}` : "";
    writeAddress();
  };
  setRunning(true);
};

function receive({data}) {
  if (data.nowUs !== undefined) nowUs = data.nowUs;
  for (const event of data.events ?? []) view.take(event);
  if (data.recorded) record(data.recorded);
  if (data.id) {
    replies.get(data.id)(data.reply);
    replies.delete(data.id);
  }
  if (data.ready) ready();
  if (data.error) notice(data.error);
  if (data.fatal) byId("loading").textContent = data.fatal;
}

let shownUs = 0;
let shownMs = performance.now();
function showClock() {
  const ms = performance.now();
  const speed = (nowUs - shownUs) / (1000 * (ms - shownMs));
  [shownUs, shownMs] = [nowUs, ms];
  const behind = running && speed < .8 * Number(choices.pace) ? ` (${speed.toPrecision(2)} times real time)` : "";
  byId("clock").textContent = `${(nowUs / 1e6).toFixed(3)} s${behind}`;
}

fillChoices();
byId("family").addEventListener("change", event => startAgain({net: event.target.value, scheme: ""}));
byId("size").addEventListener("change", event => startAgain({net: event.target.value}));
byId("scheme").addEventListener("change", event => startAgain({scheme: event.target.value}));
byId("seed").addEventListener("change", event => startAgain({seed: String(Math.max(0, Math.floor(Number(event.target.value) || 0)))}));
byId("again").addEventListener("click", () => startAgain({}));
addEventListener("hashchange", () => location.reload());

const worker = new Worker("worker.js", {type: "module"});
worker.onmessage = receive;
worker.onerror = event => receive({data: {fatal: `Python could not be started: ${event.message ?? "see the console"}`}});
const {drawing, topology} = await (await fetch(network.file)).json();
const view = new View({drawn: drawing, post, clock, simulated: true});
worker.postMessage({start: {topology, scheme: choices.scheme, seed: Number(choices.seed), past, nodeCount: network.nodes}, pace: Number(choices.pace)});
if (!wrong) writeAddress();  // a wrong address stays to be corrected

byId("pause").addEventListener("click", () => setRunning(!running));
byId("step").addEventListener("click", () => {
  setRunning(false);
  worker.postMessage({stepUs: STEP_US});
});
byId("pace").addEventListener("change", event => {
  choices.pace = event.target.value;
  writeAddress();
  worker.postMessage({pace: Number(choices.pace)});
});
addEventListener("keydown", event => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "p") byId("pause").click();
  if (event.key === "s") byId("step").click();
});
setInterval(showClock, 500);
