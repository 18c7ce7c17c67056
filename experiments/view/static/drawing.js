// The network as it is wired: each half of a link shows what the end that it begins at sends.
const RAMP = [0, .02, .35, .7, 1], WIDTH = .07, LEAST_PX = 1.6, QUEUE_WIDTH = .2, DROP_MS = 700, NAME_PX = 6.5, MARGIN = .9;

export class Drawing {
  constructor(svg, tip, state) {
    Object.assign(this, {svg: d3.select(svg), tip, state, halves: new Map(), marks: new Map(), most: 1e6, dropped: new Map()});
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => { this.colours(); this.load([...this.state.links.keys()]); });
    this.colours();
  }

  colours() {
    const idle = getComputedStyle(document.documentElement).getPropertyValue("--idle").trim();
    const high = this.dark.matches ? ["#4aa3ff", "#ffd24a", "#ff5a4d"] : ["#1769b5", "#e59b1c", "#d01c1c"];
    this.ramp = d3.scaleLinear().domain(RAMP).range([idle, d3.interpolateRgb(idle, high[0])(.35), ...high]).clamp(true);
    const words = [["ramp", "load 0 to 100 %"], ["wide", "queue"], ["drop", "drops"], ["silent", "silent"], ["down", "no carrier"]];
    document.getElementById("legend").replaceChildren(...words.map(([kind, text]) => {
      const item = document.createElement("span"), mark = document.createElement("i");
      mark.className = kind;
      if (kind === "ramp") mark.style.background = `linear-gradient(90deg, ${RAMP.map(x => `${this.ramp(x)} ${100 * x}%`).join(",")})`;
      item.append(mark, text);
      return item;
    }));
  }

  draw(groups) {
    const {links, nodes} = this.state, svg = this.svg;
    svg.selectAll("*").remove();
    const root = this.root = svg.append("g");
    const at = [...nodes.values()].map(n => n.at), round = [...at, ...groups];
    const low = [0, 1].map(i => d3.min(round, p => p[i] - p[2]) - MARGIN), high = [0, 1].map(i => d3.max(round, p => p[i] + p[2]) + MARGIN);
    this.box = [low[0], low[1], high[0] - low[0], high[1] - low[1]];
    svg.attr("viewBox", this.box.join(" "));
    const room = svg.node().getBoundingClientRect(), px = Math.min(room.width / this.box[2], room.height / this.box[3]);
    this.width = Math.max(WIDTH, LEAST_PX / px);
    const circle = (parent, [x, y, r]) => parent.append("circle").attr("cx", x).attr("cy", y).attr("r", r);
    groups.forEach(group => circle(root, group).attr("class", "group"));
    const layer = {};
    for (const name of ["drops", "chosen", "route", "halves", "hits", "nodes"]) layer[name] = root.append("g");
    this.layer = layer;
    for (const link of links.values()) this.drawLink(link);
    for (const node of nodes.values()) this.drawNode(node);
    this.zoom = d3.zoom().scaleExtent([.8, 40]).on("zoom", ({transform}) => { root.attr("transform", transform); this.names(transform.k); });
    svg.call(this.zoom).on("dblclick.zoom", null).on("dblclick", () => svg.transition().duration(250).call(this.zoom.transform, d3.zoomIdentity));
    svg.on("click", event => { if (event.target === svg.node()) this.onselect(null); });
    new ResizeObserver(() => this.names(d3.zoomTransform(svg.node()).k)).observe(svg.node());
  }

  curve(link) {
    const [a, b] = link.ends.map(name => this.state.nodes.get(name).at), c = link.control;
    return {a, b, c};
  }

  drawLink(link) {
    const {a, b, c} = this.curve(link), mid = (p, q) => [(p[0] + q[0]) / 2, (p[1] + q[1]) / 2];
    const first = mid(a, c), second = mid(c, b), middle = mid(first, second);
    const made = [[a, first], [b, second]].map(([from, by]) => {
      const d = `M${from[0]},${from[1]}Q${by[0]},${by[1]} ${middle[0]},${middle[1]}`;
      return {d, path: this.layer.halves.append("path").attr("class", "half").attr("d", d).attr("stroke-width", this.width).node()};
    });
    this.halves.set(link.link, made);
    link.d = `M${a[0]},${a[1]}Q${c[0]},${c[1]} ${b[0]},${b[1]}`;
    this.layer.hits.append("path").attr("class", "hit").attr("d", link.d)
      .on("click", () => this.onselect(link.link)).on("pointermove", event => this.hint(event, () => this.linkWords(link))).on("pointerleave", () => { this.tip.hidden = true; });
  }

  drawNode(node) {
    const [x, y, r] = node.at, group = this.layer.nodes.append("g").attr("transform", `translate(${x},${y})`).on("click", () => this.onselect(node.node))
      .on("pointermove", event => this.hint(event, () => this.nodeWords(node))).on("pointerleave", () => { this.tip.hidden = true; });
    if (node.kind === "server") group.append("circle").attr("class", "mark").attr("r", r);
    else group.append("rect").attr("class", "mark").attr("x", -r * 1.05).attr("y", -r * .85).attr("width", r * 2.1).attr("height", r * 1.7).attr("rx", r * .25);
    if (r > .2) group.append("text").style("font-size", `${Math.min(.26, 1.15 / Math.max(3, node.node.length))}px`).text(node.node);
    this.marks.set(node.node, group);
    this.node(node.node);
  }

  names(k) {
    const {width, height} = this.svg.node().getBoundingClientRect();
    const px = .26 * k * Math.min(width / this.box[2], height / this.box[3]);
    this.svg.classed("named", px > NAME_PX);
  }

  hint(event, words) {
    const stage = this.svg.node().getBoundingClientRect();
    this.tip.textContent = words();
    this.tip.hidden = false;
    const {offsetWidth: width, offsetHeight: height} = this.tip, x = event.clientX - stage.left, y = event.clientY - stage.top;
    const right = stage.width - width - 6, low = stage.height - height - 6, across = [x + 14, x - width - 14], along = [y + 14, y - height - 14];
    const places = [...d3.cross(across, along), ...d3.cross([right, 4], [4, low])].map(([left, top]) =>
      [Math.max(4, Math.min(left, right)), Math.max(4, Math.min(top, low))]);
    const nodes = [...this.marks.values()].map(mark => mark.node().getBoundingClientRect());
    const hidden = ([left, top]) => d3.sum(nodes, node => node.right > left + stage.left && node.left < left + stage.left + width
      && node.bottom > top + stage.top && node.top < top + stage.top + height);
    const [left, top] = d3.least(places, hidden);  // beside the pointer or in a corner, where fewest nodes are covered
    Object.assign(this.tip.style, {left: `${left}px`, top: `${top}px`});
  }

  linkWords(link) {
    const [to, back, q, p] = link.load;
    const what = link.state === "up" ? "" : ` (${link.state})`;
    return `${link.link}${what}: ${bits(to)} →, ${bits(back)} ←; waiting ${q}, ${p}`;
  }

  nodeWords(node) {
    const row = this.state.daemons.get(node.node), address = node.address ? ` ${node.address}` : ` ${node.kind}`;
    if (!row) return node.node + address;
    return `${node.node}${address}: ${row.pid === null ? "daemon dead" : `${row.neighbours} of ${row.of} neighbours, ${row.routes} routes`}`;
  }

  load(names) {
    for (const name of names) {
      const link = this.state.links.get(name), {load} = link, halves = this.halves.get(name);
      for (let side = 0; side < 2; side++) {
        if (!link.rate) this.most = Math.max(this.most, load[side]);
        const share = load[side] / (link.rate ?? this.most), waiting = Math.min(1, load[2 + side] / (link.queue_packets ?? 250));
        const half = halves[side], colour = this.ramp(share), width = this.width + QUEUE_WIDTH * Math.sqrt(waiting);
        if (half.colour !== colour) half.path.style.stroke = half.colour = colour;
        if (half.width !== width) half.path.setAttribute("stroke-width", half.width = width);
        if (load[4 + side]) this.drop(half);
      }
    }
  }

  drop(half) {
    half.halo ??= this.layer.drops.append("path").attr("class", "drops").attr("d", half.d).attr("stroke-width", .38).node();
    half.halo.classList.add("now");
    this.dropped.set(half, performance.now() + DROP_MS);
  }

  fade() {
    for (const [half, until] of this.dropped)
      if (performance.now() > until) { half.halo.classList.remove("now"); this.dropped.delete(half); }
  }

  link(link) {
    for (const [side, half] of this.halves.get(link.link).entries()) {
      const deaf = link.deaf && link.ends[1 - side] !== link.deaf;  // this half is what the other end hears
      half.path.setAttribute("class", `half ${link.state === "up" || deaf ? "" : link.state}`);
    }
  }

  node(name) {
    const group = this.marks.get(name), row = this.state.daemons.get(name), node = this.state.nodes.get(name);
    if (!group) return;
    const how = !row ? "" : row.pid === null ? "dead" : row.converged ? "" : "unsettled";
    group.attr("class", `node ${node.kind} ${how} ${this.chosen === name ? "chosen" : ""} ${this.ends?.includes(name) ? "end" : ""}`);
  }

  choose(name) {
    const before = this.chosen;
    this.chosen = name;
    for (const each of [before, name]) if (this.marks.has(each)) this.node(each);
    const link = this.state.links.get(name);
    this.layer.chosen.selectAll("path").data(link ? [link.d] : []).join("path").attr("class", "chosen-link").attr("d", d => d);
  }

  path(links, ends) {
    const before = this.ends ?? [];
    this.ends = ends;
    [...before, ...ends].forEach(name => this.node(name));
    this.layer.route.selectAll("path").data(links.map(name => this.state.links.get(name).d)).join("path").attr("class", "route").attr("d", d => d);
  }
}

export function bits(bps) {
  return bps >= 1e9 ? `${(bps / 1e9).toFixed(2)} Gbit/s` : bps >= 1e6 ? `${(bps / 1e6).toFixed(1)} Mbit/s` : `${Math.round(bps / 1e3)} kbit/s`;
}
