// What happened when: failures, their detection, changes of routes, outages; and what became of the last failure.
import {count} from "./words.js";

const KEPT_S = 600;
const KEPT_MARKS = 6000;
const LEFT = 78;
const RIGHT = 24;
const TOP = 4;
const LANE = 19;
const AREA = 2.4;  // lanes that the curve of lost pairs takes
const INCIDENT_S = 15;
const LIVE_LANES = ["failures", "detection", "routes", "outages", "scheme"];
const SIMULATED_LANES = ["failures", "detection", "routes", "pairs lost"];

const kindOf = event => event.state === "silent" ? "silent" : "fail";
const duration = s => s < 1 ? `${Math.max(0, 1000 * s).toFixed(s > 0 && s < .01 ? 1 : 0)} ms` : `${s.toFixed(s < 10 ? 2 : 0)} s`;

// Marks of one kind at one pixel are drawn once.
function apart(marks, left) {
  const places = new Set();
  return marks.filter(mark => {
    const place = `${mark.lane} ${mark.kind} ${Math.round(left(mark))} ${mark.from === undefined ? "" : mark.text}`;
    return !places.has(place) && places.add(place);
  });
}

export class Timeline {
  constructor(svg, words, view) {
    Object.assign(this, {svg: d3.select(svg), words, view, bars: new Map(), marks: [], lost: [], alive: new Set(), incident: null});
    this.names = view.simulated ? SIMULATED_LANES : LIVE_LANES;
    this.lanes = this.svg.append("g");
    this.area = this.svg.append("path").attr("class", "area");
    this.areaLabel = this.svg.append("text").attr("class", "most").attr("x", LEFT - 6).attr("text-anchor", "end");
    this.shapes = this.svg.append("g");
    this.axis = this.svg.append("g");
  }

  take(event) {
    const at = event.at_s;
    if (event.event === "link") this.takeLink(event);
    else if (event.event === "daemons") this.takeDaemons(event);
    else if (event.event === "neighbour") {
      const text = `${event.node} ${event.state === "down" ? "loses" : "finds"} ${event.neighbour}: ${event.why}`;
      this.mark(at, 1, event.state === "down" ? "lost" : "found", text, [event.node, event.neighbour]);
      if (event.state === "down") this.cause(at)?.detections.push([at, event.node]);
    } else if (event.event === "routes") {
      const changed = event.changes ?? Object.keys(event.changed).length;
      this.mark(at, 2, "routes", `${event.node}: ${count(changed, "route")} changed, ${event.count} lead somewhere`, [event.node]);
      this.cause(at)?.routes.push([at, event.node]);
    } else if (event.event === "outage") this.takeOutage(event);
    else if (event.event === "scheme") this.mark(at, 4, "done", `scheme ${event.scheme}`, []);
    else if (event.event === "pairs") {
      if (!this.lost.length && event.lost) return;  // daemons start: no route was lost yet
      this.lost.push(event);
      const incident = this.cause(at);
      if (incident) incident.lost.push(event);
    }
  }

  mark(at, lane, kind, text, names) {
    const known = this.view.simulated ? [] : this.marks;  // a live page may hear of an event twice
    if (!known.some(mark => mark.at === at && mark.lane === lane && mark.text === text)) this.marks.push({at, lane, kind, text, names});
    if (this.marks.length > 2 * KEPT_MARKS) this.marks = this.marks.slice(-KEPT_MARKS);  // a hidden page draws nothing
  }

  // Marks about a node or a link.
  about(name) { return this.marks.filter(mark => mark.names?.includes(name)); }

  takeLink(event) {
    const open = this.bars.get(event.link);
    if (open && event.at_s < open.from) return;  // a repetition
    if (event.state === "up") {
      if (open) { open.until = event.at_s; this.bars.delete(event.link); }
      if (this.incident?.names.delete(event.link) && !this.incident.names.size) this.incident.restored = event.at_s;
      return;
    }
    if (open?.kind === kindOf(event)) return;
    if (open) open.until = event.at_s;
    const text = `${event.link}: ${event.state === "down" ? "no carrier" : event.state}`;
    const bar = {at: event.at_s, from: event.at_s, until: null, lane: 0, kind: kindOf(event), text, names: [event.link]};
    this.bars.set(event.link, bar);
    this.marks.push(bar);
    if (!this.incident || this.incident.restored !== null || event.at_s - this.incident.at > .5) {
      this.incident = {at: event.at_s, links: [], names: new Set(), restored: null, detections: [], routes: [], outages: new Map(), lost: []};
    }
    this.incident.names.add(event.link);
    this.incident.links.push(`${event.link} ${event.state === "silent" ? "silent" : "without carrier"}`);
  }

  // A daemon that has run is dead until it runs again.
  takeDaemons(event) {
    for (const [name, row] of Object.entries(event.daemons)) {
      const open = this.bars.get(name);
      if (row.pid !== null) {
        this.alive.add(name);
        if (open) { open.until = event.at_s; this.bars.delete(name); }
      } else if (this.alive.delete(name)) {
        const bar = {at: event.at_s, from: event.at_s, until: null, lane: 0, kind: "fail", text: `${name}: daemon dead`, names: [name]};
        this.bars.set(name, bar);
        this.marks.push(bar);
      }
    }
  }

  takeOutage(event) {
    const key = `${event.from} ${event.to}`;
    const open = this.bars.get(key);
    const text = `${event.from} to ${event.to}: cut off`;
    const names = [event.from, event.to];
    if (event.state === "begun") {
      if (open) return;
      const bar = {at: event.at_s, from: event.at_s, until: null, lane: 3, kind: "outage", text, names};
      this.bars.set(key, bar);
      this.marks.push(bar);
    } else {
      const from = event.at_s - event.lasted_s;
      const bar = open ?? {at: from, from, lane: 3, kind: "outage", names};
      Object.assign(bar, {until: event.at_s, text: `${text} ${duration(event.lasted_s)}, ${event.lost} pings lost`});
      this.bars.delete(key);
      if (!open && !this.marks.some(mark => mark.text === bar.text && mark.from === bar.from)) this.marks.push(bar);
    }
    this.cause(event.state === "begun" ? event.at_s + .1 : event.at_s - event.lasted_s + .1)?.outages.set(key, event.lasted_s ?? null);
  }

  // The last failure, if it may be the cause of what happened at `at`.
  cause(at) {
    const incident = this.incident;
    return incident && at >= incident.at - .15 && at < Math.min(incident.at + INCIDENT_S, incident.restored ?? Infinity) ? incident : null;
  }

  draw() {
    const width = this.svg.node().clientWidth;
    const now = this.view.ended ? this.stopped ??= this.view.clock.now() : this.view.clock.now();
    const windowS = this.view.clock.windowS();
    const from = this.view.simulated ? Math.max(0, now - windowS) : now - windowS;  // a simulation begins at 0
    const x = d3.scaleLinear([from, from + windowS], [LEFT, width - RIGHT]);
    const end = mark => mark.until ?? (mark.from === undefined ? mark.at : now);
    this.marks = this.marks.filter(mark => end(mark) > now - KEPT_S).slice(-KEPT_MARKS);
    this.drawLanes(width);
    const left = mark => x(Math.max(mark.from ?? mark.at, from));
    const shown = apart(this.marks.filter(mark => end(mark) > from), left);
    this.shapes.selectAll("rect").data(shown).join(enter => enter.append("rect").call(rect => rect.append("title")))
      .attr("class", mark => mark.kind).attr("rx", 1.5)
      .attr("x", mark => mark.from === undefined ? left(mark) - 1.5 : left(mark))
      .attr("width", mark => mark.from === undefined ? 3 : Math.max(3, x(end(mark)) - left(mark)))
      .attr("y", mark => TOP + LANE * mark.lane + 4).attr("height", LANE - 8)
      .select("title").text(mark => `${this.view.clock.label(mark.at)} ${mark.text}`);
    const bottom = TOP + LANE * (this.names.length + (this.view.simulated ? AREA - 1 : 0));
    if (this.view.simulated) this.drawLost(x, from, now, bottom);
    const axis = d3.axisBottom(x).ticks(Math.max(2, width / 110)).tickFormat(at => this.view.clock.label(at, {coarse: true})).tickSize(4);
    this.axis.attr("transform", `translate(0,${bottom})`).call(axis);
    const pairs = this.view.network?.sampled_pairs;
    const quiet = !this.view.simulated && pairs && !shown.some(mark => mark.lane === 3);
    this.lanes.selectAll("text.empty").data(quiet ? [`none of ${pairs} sampled pairs`] : []).join("text").attr("class", "empty")
      .attr("x", LEFT + 4).attr("y", TOP + 3.5 * LANE).attr("dy", ".35em").text(d => d);
    this.tell();
  }

  drawLanes(width) {
    this.lanes.selectAll("g").data(this.names).join(enter => {
      const lane = enter.append("g");
      lane.append("text").attr("x", 0).attr("dy", ".35em").text(name => name);
      lane.append("line").attr("class", "lane");
      return lane;
    }).attr("transform", (_, i) => `translate(0,${TOP + LANE * i + LANE / 2})`)
      .select("line").attr("x1", LEFT).attr("x2", name => name === "pairs lost" ? LEFT : width - RIGHT);
  }

  // Number of lost pairs as steps, from 0 at the bottom to the highest number shown.
  drawLost(x, from, now, bottom) {
    const first = Math.max(0, d3.bisector(event => event.at_s).right(this.lost, from) - 1);
    this.lost = this.lost.slice(first);
    const steps = this.lost.map(event => [Math.max(from, event.at_s), event.lost]);
    const most = d3.max(steps, step => step[1]) || 1;
    const y = d3.scaleLinear([0, most], [bottom, bottom - LANE * AREA + 6]);
    const top = steps.map(([at, lost]) => `H${x(at)}V${y(lost)}`).join("");
    this.area.attr("d", steps.length ? `M${x(steps[0][0])},${bottom}${top}H${x(now)}V${bottom}Z` : null);
    const label = steps.some(step => step[1]) ? `${most}` : "";
    this.areaLabel.attr("y", bottom - LANE * AREA + 28).text(label && `max ${label}`);
  }

  tell() {
    const incident = this.incident;
    if (!incident) {
      this.words.textContent = "Click a link or a node to break it; click two servers to see the path between them.";
      return;
    }
    const after = list => d3.min(list, d => d[0]) - incident.at;
    const last = list => d3.max(list, d => d[0]) - incident.at;
    const nodes = list => new Set(list.map(d => d[1])).size;
    const links = incident.links.length > 3 ? `${incident.links.slice(0, 3).join(", ")} and ${incident.links.length - 3} more` : incident.links.join(", ");
    const parts = [`${this.view.clock.label(incident.at, {coarse: true})} ${links}`];
    if (incident.detections.length) parts.push(`noticed after ${duration(after(incident.detections))} by ${count(nodes(incident.detections), "daemon")}`);
    if (incident.routes.length) parts.push(`routes of ${count(nodes(incident.routes), "node")} changed, the last after ${duration(last(incident.routes))}`);
    const cut = [...incident.outages.values()];
    const over = cut.filter(lasted => lasted !== null);
    if (cut.length) {
      parts.push(`${count(cut.length, "pinged pair")} cut off` + (over.length ? `, up to ${duration(d3.max(over))}` : "")
        + (over.length < cut.length ? `, ${cut.length - over.length} still` : ""));
    }
    if (incident.lost.length) parts.push(this.lostWords(incident));
    if (incident.restored) parts.push(`restored after ${duration(incident.restored - incident.at)}`);
    this.words.textContent = parts.join("; ");
  }

  lostWords(incident) {
    const most = d3.max(incident.lost, event => event.lost);
    const end = incident.lost.at(-1);
    if (!most) return "no pair lost";
    return `${count(most, "pair")} lost` + (end.lost ? `, ${end.lost} still` : `, none after ${duration(end.at_s - incident.at)}`);
  }
}
