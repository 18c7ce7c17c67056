// What happened when: failures, their detection, changes of routes, outages; and what became of the last failure.
const WINDOW_S = 60, KEPT_S = 600, LEFT = 78, RIGHT = 12, TOP = 4, LANE = 19, INCIDENT_S = 15;
const LANES = ["failures", "detection", "routes", "outages", "scheme"];

export class Timeline {
  constructor(svg, words, state) {
    Object.assign(this, {svg: d3.select(svg), words, state, bars: new Map(), marks: [], incident: null, offset: 0});
    this.lanes = this.svg.append("g");
    this.things = this.svg.append("g");
    this.axis = this.svg.append("g");
  }

  wall(at_s) {
    return new Date(1000 * (at_s + this.offset)).toLocaleTimeString([], {hour12: false, hour: "2-digit", minute: "2-digit", second: "2-digit"})
      + `.${String(Math.floor(1000 * (((at_s + this.offset) % 1) + 1) % 1000)).padStart(3, "0")}`;
  }

  take(event) {
    const at = event.at_s;
    if (event.event === "network") this.offset = event.wall_minus_monotonic_s;
    else if (event.event === "link") this.takeLink(event);
    else if (event.event === "neighbour") {
      const text = `${event.node} ${event.state === "down" ? "loses" : "finds"} ${event.neighbour}: ${event.why}`;
      this.mark(at, 1, event.state === "down" ? "lost" : "found", text);
      if (event.state === "down") this.about(at)?.detections.push([at, event.node]);
    } else if (event.event === "routes") {
      const changed = Object.keys(event.changed).length;
      this.mark(at, 2, "routes", `${event.node}: ${changed} routes changed, ${event.count} lead somewhere`);
      this.about(at)?.routes.push([at, event.node]);
    } else if (event.event === "outage") this.takeOutage(event);
    else if (event.event === "scheme") this.mark(at, 4, "done", `scheme ${event.scheme}`);
  }

  mark(at, lane, kind, text) {
    if (!this.marks.some(one => one.at === at && one.lane === lane && one.text === text)) this.marks.push({at, lane, kind, text});
  }

  takeLink(event) {
    const open = this.bars.get(event.link);
    if (open && event.at_s <= open.from) return;  // told before
    if (event.state === "up") {
      if (open) { open.until = event.at_s; this.bars.delete(event.link); }
      if (this.incident?.names.delete(event.link) && !this.incident.names.size) this.incident.restored = event.at_s;
      return;
    }
    if (open?.kind === kindOf(event)) return;
    if (open) open.until = event.at_s;
    const bar = {at: event.at_s, from: event.at_s, until: null, lane: 0, kind: kindOf(event), text: `${event.link}: ${event.state}`};
    this.bars.set(event.link, bar);
    this.marks.push(bar);
    if (!this.incident || event.at_s - this.incident.at > .5) this.incident = {at: event.at_s, links: [], names: new Set(), restored: null, detections: [], routes: [], outages: new Map()};
    this.incident.names.add(event.link);
    this.incident.links.push(`${event.link} ${event.state === "silent" ? "silent" : "without carrier"}`);
  }

  takeOutage(event) {
    const key = `${event.from} ${event.to}`, open = this.bars.get(key);
    const text = `${event.from} to ${event.to}: cut off`;
    if (event.state === "begun") {
      if (open) return;
      const bar = {at: event.at_s, from: event.at_s, until: null, lane: 3, kind: "outage", text};
      this.bars.set(key, bar);
      this.marks.push(bar);
    } else {
      const from = event.at_s - event.lasted_s, bar = open ?? {at: from, from, lane: 3, kind: "outage"};
      Object.assign(bar, {until: event.at_s, text: `${text} ${ms(event.lasted_s)}, ${event.lost} pings lost`});
      this.bars.delete(key);
      if (!open && !this.marks.some(one => one.text === bar.text && one.from === bar.from)) this.marks.push(bar);
    }
    this.about(event.state === "begun" ? event.at_s + .1 : event.at_s - event.lasted_s + .1)?.outages.set(key, event.lasted_s ?? null);
  }

  about(at) {  // the last failure, if it may be the cause of what happened at `at`
    const one = this.incident;
    return one && at >= one.at - .15 && at < Math.min(one.at + INCIDENT_S, one.restored ?? Infinity) ? one : null;
  }

  draw() {
    const width = this.svg.node().clientWidth, now = this.state.ended ? this.stopped ??= this.state.now() : this.state.now();
    const x = d3.scaleLinear([now - WINDOW_S, now], [LEFT, width - RIGHT]), y = lane => TOP + LANE * lane;
    this.marks = this.marks.filter(one => (one.until ?? (one.from ? now : one.at)) > now - KEPT_S);
    this.lanes.selectAll("g").data(LANES).join(enter => {
      const lane = enter.append("g");
      lane.append("text").attr("x", 0).attr("dy", ".35em").text(d => d);
      lane.append("line").attr("class", "lane");
      return lane;
    }).attr("transform", (_, i) => `translate(0,${y(i) + LANE / 2})`).select("line").attr("x1", LEFT).attr("x2", width - RIGHT);
    const seen = this.marks.filter(one => (one.until ?? (one.from ? now : one.at)) > now - WINDOW_S);
    const left = one => x(Math.max(one.from ?? one.at, now - WINDOW_S));
    const pairs = this.state.network?.sampled_pairs, empty = pairs && !seen.some(one => one.lane === 3) ? [`none of ${pairs} sampled pairs`] : [];
    this.lanes.selectAll("text.empty").data(empty).join("text").attr("class", "empty").attr("x", LEFT + 4).attr("y", y(3) + LANE / 2)
      .attr("dy", ".35em").text(d => d);
    this.things.selectAll("rect").data(seen).join(enter => enter.append("rect").call(rect => rect.append("title")))
      .attr("class", d => d.kind).attr("rx", 1.5)
      .attr("x", d => d.from ? left(d) : left(d) - 1.5).attr("width", d => d.from ? Math.max(3, x(d.until ?? now) - left(d)) : 3)
      .attr("y", d => y(d.lane) + 4).attr("height", LANE - 8).select("title").text(d => `${this.wall(d.at)} ${d.text}`);
    const axis = d3.axisBottom(x).ticks(Math.max(2, width / 110)).tickFormat(at => this.wall(at).slice(0, 8)).tickSize(4);
    this.axis.attr("transform", `translate(0,${y(LANES.length)})`).call(axis);
    this.tell();
  }

  tell() {
    const one = this.incident;
    if (!one) { this.words.textContent = "Click a link or a node to break it; click two servers to see the path between them."; return; }
    const after = list => d3.min(list, d => d[0]) - one.at, last = list => d3.max(list, d => d[0]) - one.at, count = list => new Set(list.map(d => d[1])).size;
    const links = one.links.length > 3 ? `${one.links.slice(0, 3).join(", ")} and ${one.links.length - 3} more` : one.links.join(", ");
    const parts = [`${this.wall(one.at).slice(0, 8)} ${links}`];
    if (one.detections.length) parts.push(`noticed after ${ms(after(one.detections))} by ${count(one.detections)} daemon${count(one.detections) > 1 ? "s" : ""}`);
    if (one.routes.length) parts.push(`routes of ${count(one.routes)} node${count(one.routes) > 1 ? "s" : ""} changed, the last after ${ms(last(one.routes))}`);
    const cut = [...one.outages.values()], over = cut.filter(v => v !== null);
    if (cut.length) parts.push(`${cut.length} pinged pair${cut.length > 1 ? "s" : ""} cut off` + (over.length ? `, up to ${ms(d3.max(over))}` : "") + (over.length < cut.length ? `, ${cut.length - over.length} still` : ""));
    if (one.restored) parts.push(`restored after ${ms(one.restored - one.at)}`);
    this.words.textContent = parts.join("; ");
  }
}

const kindOf = event => event.state === "silent" ? "silent" : "fail";
const ms = s => s < 1 ? `${Math.max(0, 1000 * s).toFixed(0)} ms` : `${s.toFixed(s < 10 ? 2 : 0)} s`;
