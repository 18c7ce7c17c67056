// The page: takes the events of the run, as docs/watching.md has them, and hands each to what shows it.
import {Drawing} from "./drawing.js";
import {Timeline} from "./timeline.js";
import {Panel, notice, post} from "./panel.js";
import {openResults} from "./results.js";
import {listen, request, token} from "./session.js";

const SHOWN_LINES = 300, KEPT_LINES = 600, PATH_MS = 1000;
const byId = id => document.getElementById(id);

export const state = {
  network: null, nodes: new Map(), links: new Map(), daemons: new Map(), clock: 0, ended: false,
  now() { return this.clock + performance.now() / 1000; },  // of the run, in s of CLOCK_MONOTONIC
};

const page = await request("/page.json");
if (!page.ok) {
  notice((await page.text()).trim(), {stays: true});
  throw new Error(page.statusText);
}
const data = await page.json();
byId("report-token").value = token;
const drawing = new Drawing(byId("network"), byId("tip"), state);
const timeline = new Timeline(byId("timeline"), byId("incident"), state);
const panel = new Panel(byId("panel"), state);
let lines = [], path = null;

const take = {
  network(event) {
    if (state.network) return location.reload();  // the view was started again
    state.network = event;
    event.nodes.forEach((node, i) => state.nodes.set(node.node, {...node, at: data.drawing.nodes[i]}));
    event.links.forEach((link, i) => state.links.set(link.link, {
      ...link, control: data.drawing.links[i], state: "up", load: [0, 0, 0, 0, 0, 0], rate: link.rate_bps}));
    drawing.draw(data.drawing.groups);
    byId("run").textContent = event.run;
    byId("topology").textContent = `${event.topology}, ${event.nodes.filter(n => n.kind === "server").length} servers, ${event.links.length} links`;
    document.title = `${event.run}: ${event.topology}`;
    byId("names").replaceChildren(...[...state.nodes.keys(), ...state.links.keys()].map(name => new Option(name)));
    fillSchemes(event.scheme);
    panel.show(null);
  },
  load(event) {
    for (const [name, load] of Object.entries(event.links)) state.links.get(name).load = load;
    drawing.load(Object.keys(event.links));
  },
  link(event) {
    const link = state.links.get(event.link);
    Object.assign(link, {state: event.state, deaf: event.deaf, rate: event.rate_bps ?? link.rate});
    drawing.link(link);
    panel.refresh(event.link);
  },
  daemons(event) {
    for (const [name, row] of Object.entries(event.daemons)) { state.daemons.set(name, row); drawing.node(name); }
    if (panel.chosen) Object.keys(event.daemons).forEach(name => panel.refresh(name));
    else panel.nothing();
    health();
  },
  scheme(event) { fillSchemes(event.scheme); },
  now(event) { state.clock = event.at_s - performance.now() / 1000; },
  history(event) { for (const one of event.events) { timeline.take(one); if (one.event === "log") log(one); } },
  neighbour(event) { panel.refresh(event.node); },
  routes(event) { state.nodes.get(event.node).routes = event.count; panel.refresh(event.node); },
  log, outage() {},
  end() { state.ended = true; health(); notice("The run has been taken down.", {stays: true}); },
};

function log(event) {
  lines.push(event);
  if (lines.length > KEPT_LINES) lines = lines.slice(-SHOWN_LINES);
  linesChanged = true;
}
let linesChanged = false;

function showLines() {
  if (!linesChanged) return;
  linesChanged = false;
  const wanted = byId("filter").value.trim(), list = byId("lines");
  const end = list.scrollTop + list.clientHeight > list.scrollHeight - 30;
  const shown = lines.filter(l => !wanted || l.node === wanted || l.text.includes(wanted)).slice(-SHOWN_LINES);
  list.replaceChildren(...shown.map(line => {
    const row = document.createElement("li"), at = document.createElement("time"), node = document.createElement("b");
    at.textContent = timeline.wall(line.at_s);
    node.textContent = line.node;
    row.append(at, node, " ", line.text);
    return row;
  }));
  if (end) list.scrollTop = list.scrollHeight;
}

function fillSchemes(current) {
  const select = byId("scheme"), known = new Set([current, ...data.schemes]);
  select.replaceChildren(...[...known].map(name => new Option(name, name, name === current, name === current)));
  select.disabled = data.schemes.length < 2;
  select.title = select.disabled ? "This run has no data plane that could choose ports by another scheme" : "";
}

function health() {
  const rows = [...state.daemons.values()], words = byId("health");
  const dead = rows.filter(r => r.pid === null).length, apart = rows.filter(r => r.pid !== null && !r.converged).length;
  const failed = [...state.links.values()].filter(l => l.state !== "up").length;
  const parts = [];
  if (failed) parts.push(`${failed} link${failed > 1 ? "s" : ""} failed`);
  if (dead) parts.push(`${dead} daemon${dead > 1 ? "s" : ""} dead`);
  if (apart) parts.push(`${apart} of ${rows.length} daemons not converged`);
  words.className = state.ended || dead ? "wrong" : parts.length ? "meanwhile" : "ok";
  words.textContent = state.ended ? "ended" : parts.join(", ") || (rows.length ? "converged" : "up");
}

function message(event) {
  timeline.take(event);
  (take[event.event] ?? (() => {}))(event);
  if (event.event === "link") health();
  return !state.ended;
}
// Who takes a run down ends its views at once, so that none can say so: no connection may be all that a page learns.
let lost = 0;
function failed() {
  byId("health").className = "wrong";
  byId("health").textContent = "no connection";
  lost ||= setTimeout(() => notice("The run has been taken down, or this view of it has ended.", {stays: true}), 2500);
}

function opened() {
  if (lost) byId("notice").hidden = true;
  clearTimeout(lost);
  lost = 0;
}
listen({opened, message, failed});

// Click a server and then another: the path between them, asked for again each second while it is shown.
async function askPath() {
  if (!path || document.hidden || state.ended) return;
  const asked = path, answer = await post({do: "path", src: path.src, dst: path.dst}, {quiet: true});
  if (path !== asked) return;
  panel.path(path, answer);
  drawing.path(answer.error ? [] : answer.links, [path.src, path.dst]);
}

function select(name) {
  const node = state.nodes.get(name), before = state.nodes.get(panel.chosen);
  if (node?.kind === "server" && before?.kind === "server" && before !== node && !path) {
    path = {src: before.node, dst: name};
    askPath();
  } else {
    path = null;
    drawing.path([], []);
  }
  drawing.choose(name);
  panel.show(name, path);
}
drawing.onselect = select;
panel.onselect = select;

byId("find").addEventListener("change", event => {
  const name = event.target.value.trim();
  if (state.nodes.has(name) || state.links.has(name)) select(name);
  else if (name) notice(`there is no ${name}`);
});
byId("scheme").addEventListener("change", async event => {
  const answer = await post({do: "scheme", scheme: event.target.value});
  if (answer.error) fillSchemes(state.network.scheme);
});
byId("filter").addEventListener("input", () => { linesChanged = true; showLines(); });
byId("show-results").addEventListener("click", openResults);
setInterval(askPath, PATH_MS);
setInterval(() => { if (!document.hidden) { showLines(); timeline.draw(); drawing.fade(); } }, 250);
