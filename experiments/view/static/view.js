// A page that shows a network and its events: of a run (live.js), or of a simulation (simulation.js).
import {Drawing} from "./drawing.js";
import {notice} from "./notice.js";
import {Panel} from "./panel.js";
import {Timeline} from "./timeline.js";
import {count} from "./words.js";

const SHOWN_LINES = 300;
const KEPT_LINES = 600;
const REDRAW_MS = 250;
const PATH_MS = 1000;
const byId = id => document.getElementById(id);

// By link, the share of the pair's packets; without several paths, 1 on the path of a packet.
function sharesOf({links, paths}) {
  const shares = {};
  for (const path of paths ?? [{links, share: 1}]) {
    for (const link of path.links) shares[link] = (shares[link] ?? 0) + path.share;
  }
  return shares;
}

export class View {
  // drawn: places of nodes, links and groups.  post: sends a request, returns the reply.
  // clock: now() in seconds, label(seconds), windowS() of the time line.
  constructor({drawn, post, clock, simulated}) {
    Object.assign(this, {drawn, post, clock, simulated, network: null, ended: false, path: null});
    this.nodes = new Map();
    this.links = new Map();
    this.daemons = new Map();
    this.lines = [];
    this.linesChanged = false;
    this.drawing = new Drawing(byId("network"), byId("tip"), this);
    this.timeline = new Timeline(byId("timeline"), byId("incident"), this);
    this.panel = new Panel(byId("panel"), this);
    this.drawing.onselect = name => this.select(name);
    this.panel.onselect = name => this.select(name);
    byId("find").addEventListener("change", event => this.find(event.target.value.trim()));
    byId("filter").addEventListener("input", () => { this.linesChanged = true; this.showLines(); });
    byId("save").addEventListener("click", () => this.drawing.save(`${this.network.topology}.svg`));
    byId("film").addEventListener("click", () => this.drawing.saveFilm(`${this.network.topology}-film.svg`));
    setInterval(() => this.askPath(), PATH_MS);
    setInterval(() => this.redraw(), REDRAW_MS);
  }

  take(event) {
    if (event.event in this.takes) this.takes[event.event].call(this, event);
    this.timeline.take(event);
    if (["link", "daemons", "pairs"].includes(event.event)) this.health();
  }

  takes = {
    network(event) {
      this.network = event;
      event.nodes.forEach((node, i) => this.nodes.set(node.node, {...node, at: this.drawn.nodes[i]}));
      event.links.forEach((link, i) => this.links.set(link.link, {
        ...link, control: this.drawn.links[i], state: "up", load: [0, 0, 0, 0, 0, 0], rate: link.rate_bps,
      }));
      this.drawing.draw(this.drawn.groups);
      const servers = event.nodes.filter(node => node.kind === "server").length;
      byId("run").textContent = event.run;
      byId("topology").textContent = `${event.topology}, ${servers} servers, ${event.links.length} links`;
      document.title = `${event.run}: ${event.topology}`;
      const names = [...this.nodes.keys(), ...this.links.keys()];
      byId("names").replaceChildren(...names.map(name => new Option(name)));
      this.panel.show(null);
    },
    load(event) {
      for (const [name, load] of Object.entries(event.links)) this.links.get(name).load = load;
      this.drawing.load(Object.keys(event.links));
    },
    link(event) {
      const link = this.links.get(event.link);
      const {state, deaf, altered} = event;
      Object.assign(link, {state, deaf, altered, rate: event.rate_bps ?? link.rate});
      this.drawing.link(link);
      this.panel.refresh(event.link);
    },
    daemons(event) {
      for (const [name, row] of Object.entries(event.daemons)) {
        this.daemons.set(name, row);
        this.drawing.node(name);
        this.panel.refresh(name);
      }
      if (!this.panel.chosen) this.panel.nothing();
    },
    history(event) {
      for (const past of event.events) {
        this.timeline.take(past);
        if (past.event === "log") this.takes.log.call(this, past);
      }
    },
    neighbour(event) { this.panel.refresh(event.node); },
    routes(event) {
      this.nodes.get(event.node).routes = event.count;
      this.panel.refresh(event.node);
    },
    pairs(event) {
      this.pairs = event;
      if (!this.panel.chosen) this.panel.nothing();
    },
    scheme(event) {
      this.network.scheme = event.scheme;
      if (!this.panel.chosen) this.panel.nothing();
    },
    packets(event) { this.drawing.packets(event.packets); },
    log(event) {
      this.lines.push(event);
      if (this.lines.length > KEPT_LINES) this.lines = this.lines.slice(-SHOWN_LINES);
      this.linesChanged = true;
    },
    end() {
      this.ended = true;
      this.health();
      notice("The run has been taken down.", {stays: true});
    },
  };

  health() {
    const rows = [...this.daemons.values()];
    const dead = rows.filter(row => row.pid === null).length;
    const apart = rows.filter(row => row.pid !== null && !row.converged).length;
    const failed = [...this.links.values()].filter(link => link.state !== "up").length;
    const parts = [];
    if (failed) parts.push(`${count(failed, "link")} failed`);
    if (dead) parts.push(`${count(dead, "daemon")} dead`);
    if (apart) parts.push(`${apart} of ${rows.length} daemons not converged`);
    if (this.pairs?.lost) parts.push(`${this.pairs.lost} of ${this.pairs.of} pairs lost`);
    const words = byId("health");
    words.className = this.ended || dead || this.pairs?.lost ? "wrong" : parts.length ? "meanwhile" : "ok";
    words.textContent = this.ended ? "ended" : parts.join(", ") || (rows.length ? "converged" : "up");
  }

  redraw() {
    if (document.hidden || !this.network) return;
    this.showLines();
    this.timeline.draw();
    this.drawing.fade();
  }

  showLines() {
    if (!this.linesChanged) return;
    this.linesChanged = false;
    const wanted = byId("filter").value.trim();
    const list = byId("lines");
    const atEnd = list.scrollTop + list.clientHeight > list.scrollHeight - 30;
    const shown = this.lines.filter(line => !wanted || line.node === wanted || line.text.includes(wanted));
    list.replaceChildren(...shown.slice(-SHOWN_LINES).map(line => {
      const row = document.createElement("li");
      const time = document.createElement("time");
      const node = document.createElement("b");
      time.textContent = this.clock.label(line.at_s);
      node.textContent = line.node;
      row.append(time, node, " ", line.text);
      return row;
    }));
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  // A server and then another: the path between them, asked for again while it is shown.
  select(name) {
    const node = this.nodes.get(name);
    const before = this.nodes.get(this.panel.chosen);
    const twoServers = node?.kind === "server" && before?.kind === "server" && before !== node;
    if (twoServers && !this.path) {
      this.showPath(before.node, name);
    } else {
      this.path = null;
      this.drawing.path({}, []);
      this.onpath?.(null);
    }
    this.drawing.choose(name);
    this.panel.show(name, this.path);
    if (this.path) this.askPath();
  }

  showPath(src, dst) {
    this.path = {src, dst};
    this.onpath?.(this.path);
  }

  async askPath() {
    if (!this.path || document.hidden || this.ended) return;
    const asked = this.path;
    const reply = await this.post({do: "path", ...asked}, {quiet: true});
    if (this.path !== asked) return;
    this.panel.path(asked, reply);
    this.drawing.path(reply.error ? {} : sharesOf(reply), [asked.src, asked.dst]);
  }

  find(name) {
    if (this.nodes.has(name) || this.links.has(name)) this.select(name);
    else if (name) notice(`there is no ${name}`);
  }
}
