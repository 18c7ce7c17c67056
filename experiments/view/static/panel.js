// What is known of the node or link that was clicked, and what can be done to it.
import {bits} from "./drawing.js";
import {request} from "./session.js";

const REFRESH_MS = 300;

export async function post(action, {quiet = false} = {}) {
  try {
    const answer = await request("/do", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(action)});
    const told = answer.ok ? await answer.json() : {error: (await answer.text()).trim() || answer.statusText};
    if (told.error && !quiet) notice(told.error);
    return told;
  } catch (error) {
    if (!quiet) notice("no connection");
    return {error: String(error)};
  }
}

let hiding = 0;
export function notice(text, {stays = false} = {}) {
  const box = document.getElementById("notice");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(hiding);
  if (!stays) hiding = setTimeout(() => { box.hidden = true; }, 6000);
}

const element = (tag, text, kind) => Object.assign(document.createElement(tag), {textContent: text ?? "", className: kind ?? ""});

function table(head, rows) {
  const made = element("table"), first = made.createTHead().insertRow();
  head.forEach(text => first.append(element("th", text)));
  const body = made.createTBody();
  for (const row of rows) { const tr = body.insertRow(); row.forEach(text => tr.append(element("td", text))); }
  return made;
}

export class Panel {
  constructor(box, state) { Object.assign(this, {box, state, chosen: null, about: null, timer: 0}); setInterval(() => this.live(), REFRESH_MS); }

  show(name, path = null) {
    this.chosen = name;
    this.about = null;
    this.liveBox = null;
    this.pathBox = path ? element("div") : null;
    const link = this.state.links.get(name);
    if (link) this.link(link);
    else if (this.state.nodes.has(name)) this.node(name);
    else this.nothing();
  }

  refresh(name) {
    if (name !== this.chosen || this.timer) return;
    this.timer = setTimeout(() => { this.timer = 0; if (this.chosen === name) this.state.links.has(name) ? this.link(this.state.links.get(name)) : this.node(name); }, REFRESH_MS);
  }

  nothing() {
    const {network, daemons} = this.state, rows = [["scheme", network.scheme], ["routing", network.routing]];
    const rate = network.links[0]?.rate_bps;
    rows.push(["links", rate ? bits(rate) : "as fast as the machine can"], ["daemons", daemons.size || "none"]);
    this.box.replaceChildren(element("h2", "network"), table(["", ""], rows),
      element("p", "Click a link or a node to see and to break it; click two servers to see the path that packets take between them. Drag to move, scroll to zoom, double-click to see all.", "faint"));
  }

  buttons(list) {
    const box = element("div", "", "buttons");
    for (const [text, action, kind] of list) {
      const button = element("button", text, kind);
      button.type = "button";
      button.addEventListener("click", async () => { button.disabled = true; await post(action); button.disabled = false; this.refresh(this.chosen); });
      box.append(button);
    }
    return box;
  }

  async link(link) {
    const held = await post({do: "link", link: link.link}, {quiet: true});
    if (this.chosen !== link.link) return;
    const how = {up: "up", silent: link.deaf ? `silent: ${link.deaf} hears nothing` : "silent: packets vanish", down: "no carrier"}[link.state];
    const what = link.link, parts = [element("h2", `link ${what}`), element("p", how, link.state === "up" ? "ok" : "wrong")];
    if (link.rate && link.rate !== link.rate_bps) parts.push(element("p", `degraded to ${bits(link.rate)}`, "meanwhile"));
    const altered = [held.loss_percent && `loses ${held.loss_percent} %`, held.delay_us && `delays ${held.delay_us / 1000} ms`].filter(Boolean);
    if (altered.length) parts.push(element("p", altered.join(", "), "meanwhile"));
    parts.push(this.liveBox = element("div"));
    parts.push(this.buttons([["fail", {do: "fail", what}, "danger"], ["fail silently", {do: "fail", what, silent: true}, "danger"], ["restore", {do: "restore", what}]]));
    if (link.rate_bps) parts.push(element("h3", "degrade to"), this.buttons([50, 25, 10].map(percent =>
      [`${percent} %`, {do: "degrade", link: what, rate: `${Math.max(1, Math.round(link.rate_bps * percent / 1e5))}kbit`}])));
    parts.push(element("h3", "lose"), this.buttons([.1, 1, 10].map(percent => [`${percent} %`, {do: "impair", link: what, loss: `${percent}`}])),
      element("h3", "delay, one way"), this.buttons([1, 5, 20].map(delay => [`${delay} ms`, {do: "impair", link: what, delay: `${delay}ms`}])));
    parts.push(element("p", `level ${link.level}`, "faint"), element("h3", "ends"), this.links(link.ends));
    this.box.replaceChildren(...parts);
    this.live();
  }

  live() {
    const link = this.state.links.get(this.chosen);
    if (!link || !this.liveBox) return;
    const [to, back, q, p, d, e] = link.load, [a, b] = link.ends, most = link.rate;
    const row = (from, bps, waiting, drops) => [from, bits(bps) + (most ? ` (${Math.round(100 * bps / most)} %)` : ""), waiting, drops];
    this.liveBox.replaceChildren(table(["from", "sends", "waiting", "drops"], [row(a, to, q, d), row(b, back, p, e)]));
  }

  links(names) {
    const box = element("div", "", "buttons");
    for (const name of names) {
      const button = element("button", name);
      button.type = "button";
      button.addEventListener("click", () => this.onselect(name));
      box.append(button);
    }
    return box;
  }

  async node(name) {
    const node = this.state.nodes.get(name), row = this.state.daemons.get(name);
    const told = await post({do: "node", node: name}, {quiet: true});
    if (this.chosen !== name) return;
    const parts = [element("h2", `${node.kind} ${name}`), element("p", [node.label !== name ? node.label : "", node.address].filter(Boolean).join(", "), "faint")];
    if (this.pathBox) parts.push(this.pathBox);
    if (row) parts.push(element("p", row.pid === null ? "its daemon is dead" : `daemon ${row.pid}: ${row.neighbours} of ${row.of} neighbours, ${row.converged ? "converged" : "not converged"}`, row.pid === null ? "wrong" : row.converged ? "ok" : "meanwhile"));
    const actions = [["fail", {do: "fail", what: name}, "danger"], ["fail silently", {do: "fail", what: name, silent: true}, "danger"], ["restore", {do: "restore", what: name}]];
    if (row) actions.push(["restart daemon", {do: "restart", node: name}]);
    parts.push(this.buttons(actions));
    if (told.error) parts.push(element("p", told.error, "wrong"));
    else parts.push(...this.known(told));
    this.box.replaceChildren(...parts);
  }

  known(told) {
    const parts = [element("h3", "links"), this.links(told.links)];
    if (told.neighbours) parts.push(element("h3", "neighbours"), table(["port", "node", "state"], told.neighbours.map(n => [n.port, n.node, n.state])));
    const routes = Object.entries(told.routes);
    if (routes.length) parts.push(element("h3", `${routes.length} routes`), table(["prefix", "by way of"], routes.map(([prefix, hops]) => [prefix, hops.join(", ") || "unreachable"])));
    if (told.log.length) parts.push(element("h3", "log"), element("pre", told.log.slice(-14).map(line => line.split(" ").slice(2).join(" ")).join("\n")));
    return parts;
  }

  path({src, dst}, answer) {
    if (!this.pathBox) return;
    const parts = [element("h3", `path from ${src} to ${dst}`)];
    if (answer.error) parts.push(element("p", answer.error, "wrong"));
    else {
      parts.push(element("p", answer.nodes.join(" → ")));
      parts.push(answer.reason ? element("p", answer.reason, "wrong") : element("p", `${answer.nodes.length - 1} hops, as a packet takes it now`, "faint"));
    }
    this.pathBox.replaceChildren(...parts);
  }
}
