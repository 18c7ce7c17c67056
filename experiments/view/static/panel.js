// What is known of the chosen node or link, and what can be done to it.
import {bits, percent} from "./drawing.js";
import {count} from "./words.js";

const REFRESH_MS = 300;
const HISTORY_ROWS = 8;
const PATH_ROWS = 32;

const element = (tag, text, kind) => Object.assign(document.createElement(tag), {textContent: text ?? "", className: kind ?? ""});

function table(head, rows) {
  const grid = element("table");
  if (head.length) {
    const first = grid.createTHead().insertRow();
    head.forEach(text => first.append(Object.assign(element("th", text), {scope: "col"})));
  }
  const body = grid.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach(text => line.append(element("td", text)));
  }
  return grid;
}

export class Panel {
  constructor(box, view) {
    Object.assign(this, {box, view, chosen: null, timer: 0});
    setInterval(() => this.live(), REFRESH_MS);
  }

  show(name, path = null) {
    this.chosen = name;
    this.liveBox = null;
    this.pathBox = path ? element("div") : null;
    this.fill();
  }

  fill() {
    const link = this.view.links.get(this.chosen);
    if (link) this.link(link);
    else if (this.view.nodes.has(this.chosen)) this.node(this.chosen);
    else this.nothing();
  }

  refresh(name) {
    if (name !== this.chosen || this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.fill();
    }, REFRESH_MS);
  }

  // Replaces the content; the button with the same words keeps the focus.
  replace(parts) {
    const focused = this.box.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.box.replaceChildren(...parts);
    if (focused) [...this.box.querySelectorAll("button")].find(button => button.textContent === focused)?.focus();
  }

  nothing() {
    const {network, daemons, simulated, pairs} = this.view;
    const rows = [["scheme", network.scheme]];
    if (!simulated) {
      const rate = network.links[0]?.rate_bps;
      rows.push(["routing", network.routing], ["links", rate ? bits(rate) : "as fast as the machine can"]);
    }
    rows.push(["daemons", daemons.size || "none"]);
    if (pairs) rows.push(["pairs lost", `${pairs.lost} of ${pairs.of}`]);
    const help = "Click a link or a node to see and to break it; click two servers to see the path that packets take between them. "
      + "Drag to move, scroll to zoom, double-click to see all. Arrow keys move from node to node.";
    this.replace([element("h2", "network"), table([], rows), element("p", help, "faint")]);
  }

  buttons(list) {
    const box = element("div", "", "buttons");
    for (const [text, action, kind] of list) {
      const button = Object.assign(element("button", text, kind), {type: "button"});
      button.addEventListener("click", async () => {
        button.setAttribute("aria-busy", "true");
        await this.view.post(action);
        button.removeAttribute("aria-busy");
        this.refresh(this.chosen);
      });
      box.append(button);
    }
    return box;
  }

  async link(link) {
    const what = link.link;
    const kernel = await this.view.post({do: "link", link: what}, {quiet: true});
    if (this.chosen !== what) return;
    const words = {up: "up", silent: link.deaf ? `silent: ${link.deaf} hears nothing` : "silent: packets vanish", down: "no carrier"};
    const parts = [element("h2", `link ${what}`), element("p", words[link.state], link.state === "up" ? "ok" : "wrong")];
    if (link.rate && link.rate !== link.rate_bps) parts.push(element("p", `degraded to ${bits(link.rate)}`, "meanwhile"));
    const altered = [
      kernel.loss_percent && `loses ${kernel.loss_percent} %`,
      kernel.delay_us && `delays ${kernel.delay_us / 1000} ms`,
      kernel.degraded && "reported as degraded",
    ].filter(Boolean);
    if (altered.length) parts.push(element("p", altered.join(", "), "meanwhile"));
    if (!this.view.simulated) parts.push(this.liveBox = element("div"));
    parts.push(this.buttons([
      ["fail", {do: "fail", what}, "danger"],
      ["fail silently", {do: "fail", what, silent: true}, "danger"],
      ["restore", {do: "restore", what}],
    ]));
    parts.push(...this.impairments(link));
    parts.push(element("p", `level ${link.level}`, "faint"), element("h3", "ends"), this.links(link.ends), ...this.history(what));
    this.replace(parts);
    this.live();
  }

  impairments(link) {
    const what = link.link;
    const parts = [];
    if (link.rate_bps) {
      const rate = share => `${Math.max(1, Math.round(link.rate_bps * share / 1e5))}kbit`;
      parts.push(element("h3", "degrade to"), this.buttons([50, 25, 10].map(share => [`${share} %`, {do: "degrade", link: what, rate: rate(share)}])));
    }
    if (this.view.network.handles_degraded_links) {
      parts.push(element("h3", "degrade"), this.buttons([["report to both ends", {do: "degrade", link: what}]]));
    }
    parts.push(element("h3", "lose"), this.buttons([.1, 1, 10, 50].map(share => [`${share} %`, {do: "impair", link: what, loss: `${share}`}])));
    parts.push(element("h3", "delay, one way"), this.buttons([1, 5, 20].map(delay => [`${delay} ms`, {do: "impair", link: what, delay: `${delay}ms`}])));
    return parts;
  }

  history(name) {
    const marks = this.view.timeline.about(name).slice(-HISTORY_ROWS).reverse();
    if (!marks.length) return [];
    return [element("h3", "history, newest first"), table(["time", "event"], marks.map(mark => [this.view.clock.label(mark.at), mark.text]))];
  }

  live() {
    const link = this.view.links.get(this.chosen);
    if (!link || !this.liveBox) return;
    const [to, back, q, p, d, e] = link.load;
    const [a, b] = link.ends;
    const share = bps => bits(bps) + (link.rate ? ` (${Math.round(100 * bps / link.rate)} %)` : "");
    this.liveBox.replaceChildren(table(["from", "sends", "waiting", "drops"], [[a, share(to), q, d], [b, share(back), p, e]]));
  }

  links(names) {
    const box = element("div", "", "buttons");
    for (const name of names) {
      const button = Object.assign(element("button", name), {type: "button"});
      button.addEventListener("click", () => this.onselect(name));
      box.append(button);
    }
    return box;
  }

  async node(name) {
    const node = this.view.nodes.get(name);
    const row = this.view.daemons.get(name);
    const reply = await this.view.post({do: "node", node: name}, {quiet: true});
    if (this.chosen !== name) return;
    const address = [node.label !== name ? node.label : "", node.address].filter(Boolean).join(", ");
    const parts = [element("h2", `${node.kind} ${name}`), element("p", address, "faint")];
    if (this.pathBox) parts.push(this.pathBox);
    if (row) parts.push(this.daemon(row));
    parts.push(this.buttons(this.nodeActions(name, row)));
    if (reply.error) parts.push(element("p", reply.error, "wrong"));
    else parts.push(...this.known(reply));
    this.replace([...parts, ...this.history(name)]);
  }

  daemon(row) {
    if (row.pid === null) return element("p", "its daemon is dead", "wrong");
    const process = this.view.simulated ? "daemon" : `daemon ${row.pid}`;
    const words = `${process}: ${row.neighbours} of ${row.of} neighbours, ${row.converged ? "converged" : "not converged"}`;
    return element("p", words, row.converged ? "ok" : "meanwhile");
  }

  nodeActions(name, row) {
    const actions = [
      ["fail", {do: "fail", what: name}, "danger"],
      ["fail silently", {do: "fail", what: name, silent: true}, "danger"],
      ["restore", {do: "restore", what: name}],
    ];
    if (row && this.view.simulated) {
      actions.push(["kill daemon", {do: "stop", node: name}, "danger"], ["cut power", {do: "power", node: name}, "danger"]);
    }
    if (row) actions.push(["restart daemon", {do: "restart", node: name}]);
    return actions;
  }

  known(reply) {
    const parts = [element("h3", "links"), this.links(reply.links)];
    if (reply.neighbours) parts.push(element("h3", "neighbours"), table(["port", "node", "state"], reply.neighbours.map(n => [n.port, n.node, n.state])));
    const routes = Object.entries(reply.routes);
    if (routes.length) {
      const box = element("div", "", "scroll");
      box.tabIndex = 0;
      box.append(table(["prefix", "by way of"], routes.map(([prefix, hops]) => [prefix, hops.join(", ") || "unreachable"])));
      parts.push(element("h3", `${routes.length} routes`), box);
    }
    if (reply.log?.length) parts.push(element("h3", "log"), element("pre", reply.log.slice(-14).map(line => line.split(" ").slice(2).join(" ")).join("\n")));
    return parts;
  }

  path({src, dst}, reply) {
    if (!this.pathBox) return;
    const parts = [element("h3", `path from ${src} to ${dst}`)];
    if (reply.error) {
      parts.push(element("p", reply.error, "wrong"));
    } else if (reply.paths) {
      parts.push(...this.severalPaths(reply));
    } else {
      parts.push(element("p", reply.nodes.join(" → ")));
      parts.push(reply.reason ? element("p", reply.reason, "wrong") : element("p", `${count(reply.nodes.length - 1, "hop")}, as a packet takes it now`, "faint"));
    }
    this.pathBox.replaceChildren(...parts);
  }

  severalPaths({paths, by_queues: byQueues, reason}) {
    const words = byQueues ? "Shares while all queues are equally long; switches choose by queues." : "Shares of the pair's packets over healthy links.";
    const parts = [element("p", `${paths.length} paths`)];
    if (reason) parts.push(element("p", `a packet now: ${reason}`, "wrong"));
    const rows = paths.slice(0, PATH_ROWS).map(({share, nodes}) => [percent(share), nodes.slice(1, -1).join(" → ")]);
    parts.push(table(["share", "by way of"], rows));
    if (paths.length > PATH_ROWS) parts.push(element("p", `and ${paths.length - PATH_ROWS} more`, "faint"));
    return [...parts, element("p", words, "faint")];
  }
}
