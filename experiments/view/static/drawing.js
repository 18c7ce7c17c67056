// The network as it is wired: each half of a link shows what the end that it begins at sends.
import {DOT_MS, Film, KEPT_MS} from "./film.js";

const RAMP = [0, .02, .35, .7, 1];
const WIDTH = .07;
const LEAST_PX = 1.6;
const QUEUE_WIDTH = .2;
const DROP_MS = 700;
const NAME_PX = 6.5;
const MARGIN = .9;
const DOT_PX = 2.6;
const MOST_DOTS = 1500;
const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "text-anchor", "dominant-baseline", "display"];
const DIRECTIONS = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1]};

const packetKind = message => message === "hello" ? "hello" : message.includes("probe") ? "probe" : "news";
const middleOf = (p, q) => [(p[0] + q[0]) / 2, (p[1] + q[1]) / 2];
const property = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Drawing {
  constructor(svg, tip, view) {
    Object.assign(this, {svg: d3.select(svg), tip, view, halves: new Map(), marks: new Map(), most: 1e6, dropped: new Map(), dots: [], film: new Film()});
    this.canvas = document.getElementById("packets");
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => { this.colours(); this.load([...this.view.links.keys()]); });
    this.colours();
    svg.addEventListener("keydown", event => this.key(event));
  }

  colours() {
    const idle = property("--idle");
    const high = this.dark.matches ? ["#4aa3ff", "#ffd24a", "#ff5a4d"] : ["#1769b5", "#e59b1c", "#d01c1c"];
    this.ramp = d3.scaleLinear().domain(RAMP).range([idle, d3.interpolateRgb(idle, high[0])(.35), ...high]).clamp(true);
    this.dotColours = {hello: property("--faint"), probe: property("--path"), news: property("--accent")};
    const live = [["ramp", "load 0 to 100 %"], ["wide", "queue"], ["drop", "drops"]];
    const packets = [["dot hello", "hello"], ["dot probe", "probe"], ["dot news", "routing message"], ["altered", "lossy, slow or degraded"]];
    const words = [...this.view.simulated ? packets : live, ["silent", "silent"], ["down", "no carrier"], ["ring unsettled", "not converged"], ["ring dead", "no daemon"]];
    if (this.parted) words.push(["share", "path: width and % are the share of the pair's packets"]);
    document.getElementById("legend").replaceChildren(...words.map(([kind, text]) => {
      const item = document.createElement("span");
      const mark = document.createElement("i");
      mark.className = kind;
      if (kind === "ramp") mark.style.background = `linear-gradient(90deg, ${RAMP.map(x => `${this.ramp(x)} ${100 * x}%`).join(",")})`;
      item.append(mark, text);
      return item;
    }));
  }

  draw(groups) {
    const {links, nodes} = this.view;
    const svg = this.svg;
    svg.selectAll("*").remove();
    const root = this.root = svg.append("g");
    const round = [...[...nodes.values()].map(node => node.at), ...groups];
    const low = [0, 1].map(i => d3.min(round, p => p[i] - p[2]) - MARGIN);
    const high = [0, 1].map(i => d3.max(round, p => p[i] + p[2]) + MARGIN);
    this.box = [low[0], low[1], high[0] - low[0], high[1] - low[1]];
    svg.attr("viewBox", this.box.join(" "));
    const room = svg.node().getBoundingClientRect();
    const px = Math.min(room.width / this.box[2], room.height / this.box[3]);
    this.width = Math.max(WIDTH, LEAST_PX / px);
    svg.style("--scale", this.width / WIDTH);  // by which strokes are wider than in a small network
    groups.forEach(([x, y, r]) => root.append("circle").attr("cx", x).attr("cy", y).attr("r", r).attr("class", "group"));
    this.layer = {};
    for (const name of ["drops", "chosen", "route", "halves", "hits", "dots", "nodes", "shares"]) this.layer[name] = root.append("g").attr("class", name === "dots" ? "dots" : null);
    this.drawnMs = performance.now();
    for (const link of links.values()) this.drawLink(link);
    for (const node of nodes.values()) this.drawNode(node);
    this.zoom = d3.zoom().scaleExtent([.8, 40]).on("zoom", ({transform}) => { root.attr("transform", transform); this.names(transform.k); });
    svg.call(this.zoom).on("dblclick.zoom", null).on("dblclick", () => svg.transition().duration(250).call(this.zoom.transform, d3.zoomIdentity));
    svg.on("click", event => { if (event.target === svg.node()) this.onselect(null); });
    new ResizeObserver(() => this.names(d3.zoomTransform(svg.node()).k)).observe(svg.node());
  }

  curve(link) {
    const [a, b] = link.ends.map(name => this.view.nodes.get(name).at);
    return {a, b, c: link.control};
  }

  drawLink(link) {
    const {a, b, c} = this.curve(link);
    const first = middleOf(a, c);
    const second = middleOf(c, b);
    const middle = middleOf(first, second);
    const halves = [[a, first], [b, second]].map(([from, by]) => {
      const d = `M${from[0]},${from[1]}Q${by[0]},${by[1]} ${middle[0]},${middle[1]}`;
      return {d, path: this.layer.halves.append("path").attr("class", "half").attr("d", d).attr("stroke-width", this.width).node()};
    });
    this.halves.set(link.link, halves);
    link.d = `M${a[0]},${a[1]}Q${c[0]},${c[1]} ${b[0]},${b[1]}`;
    const hit = this.layer.hits.append("path").attr("class", "hit").attr("d", link.d);
    this.listen(hit, link.link, () => this.linkWords(link));
  }

  drawNode(node) {
    const [x, y, r] = node.at;
    const group = this.layer.nodes.append("g").attr("transform", `translate(${x},${y})`);
    this.listen(group, node.node, () => this.nodeWords(node));
    if (node.kind === "server") group.append("circle").attr("class", "mark").attr("r", r);
    else group.append("rect").attr("class", "mark").attr("x", -r * 1.05).attr("y", -r * .85).attr("width", r * 2.1).attr("height", r * 1.7).attr("rx", r * .25);
    if (r > .2) group.append("text").style("font-size", `${Math.min(.26, 1.15 / Math.max(3, node.node.length))}px`).text(node.node);
    this.marks.set(node.node, group);
    this.node(node.node);
  }

  listen(shape, name, words) {
    shape.on("click", () => this.onselect(name))
      .on("pointermove", event => this.hint(event, words))
      .on("pointerleave", () => { this.tip.hidden = true; });
  }

  // An arrow key chooses the nearest node in its direction.
  key(event) {
    if (event.key === "Escape") this.onselect(null);
    if (event.key === "+" || event.key === "-") this.svg.call(this.zoom.scaleBy, event.key === "+" ? 1.4 : 1 / 1.4);
    const direction = DIRECTIONS[event.key];
    if (!direction) return;
    event.preventDefault();
    const chosen = this.view.nodes.get(this.chosen);
    const [x, y] = chosen?.at ?? [this.box[0], this.box[1]];
    const distance = node => {
      const along = (node.at[0] - x) * direction[0] + (node.at[1] - y) * direction[1];
      const across = Math.abs((node.at[0] - x) * direction[1] + (node.at[1] - y) * direction[0]);
      return along < .05 ? Infinity : along + 2.5 * across;
    };
    const nodes = [...this.view.nodes.values()].filter(node => node !== chosen);
    const nearest = chosen ? d3.least(nodes, distance) : nodes[0];
    if (nearest && (!chosen || distance(nearest) < Infinity)) this.onselect(nearest.node);
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
    const {offsetWidth: width, offsetHeight: height} = this.tip;
    const x = event.clientX - stage.left;
    const y = event.clientY - stage.top;
    const right = stage.width - width - 6;
    const low = stage.height - height - 6;
    const corners = d3.cross([right, 4], [4, low]);
    const beside = d3.cross([x + 14, x - width - 14], [y + 14, y - height - 14]);
    const places = [...beside, ...corners].map(([left, top]) => [Math.max(4, Math.min(left, right)), Math.max(4, Math.min(top, low))]);
    const nodes = [...this.marks.values()].map(mark => mark.node().getBoundingClientRect());
    const hidden = ([left, top]) => d3.sum(nodes, node => node.right > left + stage.left && node.left < left + stage.left + width
      && node.bottom > top + stage.top && node.top < top + stage.top + height);
    const [left, top] = d3.least(places, hidden);  // beside the pointer or in a corner, where fewest nodes are covered
    Object.assign(this.tip.style, {left: `${left}px`, top: `${top}px`});
  }

  linkWords(link) {
    const state = link.state === "up" ? "" : ` (${link.state})`;
    if (this.view.simulated) return `${link.link}${state}`;
    const [to, back, q, p] = link.load;
    return `${link.link}${state}: ${bits(to)} →, ${bits(back)} ←; waiting ${q}, ${p}`;
  }

  nodeWords(node) {
    const row = this.view.daemons.get(node.node);
    const address = node.address ? ` ${node.address}` : ` ${node.kind}`;
    if (!row) return node.node + address;
    return `${node.node}${address}: ${row.pid === null ? "daemon dead" : `${row.neighbours} of ${row.of} neighbours, ${row.routes} routes`}`;
  }

  load(names) {
    for (const name of names) {
      const link = this.view.links.get(name);
      const {load} = link;
      for (const [side, half] of this.halves.get(name).entries()) {
        if (!link.rate) this.most = Math.max(this.most, load[side]);
        const share = load[side] / (link.rate ?? this.most);
        const waiting = Math.min(1, load[2 + side] / (link.queue_packets ?? 250));
        const colour = this.ramp(share);
        const width = this.width + QUEUE_WIDTH * Math.sqrt(waiting);
        const changed = half.colour !== colour || half.width !== width;
        if (half.colour !== colour) half.path.style.stroke = half.colour = colour;
        if (half.width !== width) half.path.setAttribute("stroke-width", half.width = width);
        if (load[4 + side]) this.drop(half);
        if (changed && half.path.classList.length === 1) this.film.addStyle(half.path, {stroke: colour, "stroke-width": `${width}`}, performance.now());
      }
    }
  }

  drop(half) {
    half.halo ??= this.layer.drops.append("path").attr("class", "drops").attr("d", half.d).attr("stroke-width", .38).node();
    half.halo.classList.add("now");
    this.dropped.set(half, performance.now() + DROP_MS);
  }

  fade() {
    for (const [half, until] of this.dropped) {
      if (performance.now() > until) {
        half.halo.classList.remove("now");
        this.dropped.delete(half);
      }
    }
  }

  link(link) {
    for (const [side, half] of this.halves.get(link.link).entries()) {
      const deaf = link.deaf && link.ends[1 - side] !== link.deaf;  // this half is what the other end hears
      const state = link.state === "up" || deaf ? "" : link.state;
      this.film.change(half.path, () => half.path.setAttribute("class", `half ${state || (link.altered ? "altered" : "")}`));
    }
  }

  node(name) {
    const group = this.marks.get(name);
    if (!group) return;
    const row = this.view.daemons.get(name);
    const state = !row ? "" : row.pid === null ? "dead" : row.converged ? "" : "unsettled";
    const words = `node ${this.view.nodes.get(name).kind} ${state} ${this.chosen === name ? "chosen" : ""} ${this.ends?.includes(name) ? "end" : ""}`;
    if (group.attr("class") !== words) this.film.change(group.select(".mark").node(), () => group.attr("class", words));
  }

  choose(name) {
    const before = this.chosen;
    this.chosen = name;
    for (const other of [before, name]) if (this.marks.has(other)) this.node(other);
    const link = this.view.links.get(name);
    this.layer.chosen.selectAll("path").data(link ? [link.d] : []).join("path").attr("class", "chosen-link").attr("d", d => d);
  }

  // shares: of the pair's packets, by link.  Width and label show those below 1.
  path(shares, ends) {
    const before = this.ends ?? [];
    this.ends = ends;
    [...before, ...ends].forEach(name => this.node(name));
    const routes = Object.entries(shares).map(([name, share]) => ({link: this.view.links.get(name), share}));
    const parted = routes.filter(({share}) => share < .9995);
    this.layer.route.selectAll("path").data(routes).join("path").attr("class", "route").attr("d", ({link}) => link.d)
      .style("--share", ({share}) => share);
    this.layer.shares.selectAll("text").data(parted).join("text").attr("class", "share").text(({share}) => percent(share))
      .each(({link}, i, texts) => {
        const {a, b, c} = this.curve(link);
        const [x, y] = middleOf(middleOf(a, c), middleOf(c, b));
        d3.select(texts[i]).attr("x", x).attr("y", y);
      });
    if (this.parted === parted.length > 0) return;
    this.parted = parted.length > 0;
    this.colours();
  }

  // Packets that left a node: [time, node, number of the link, message].  They move as dots.
  packets(list) {
    const links = [...this.view.links.values()];
    for (const [, node, number, message] of list) this.addDot(links[number], node, packetKind(message), performance.now());
    this.frame ??= requestAnimationFrame(() => this.drawDots());
  }

  addDot(link, sender, kind, start) {
    const broken = link.state === "silent" || link.state === "down";
    if (this.dots.length >= MOST_DOTS) return;
    this.dots.push({link, sender, kind, start, broken});
    this.film.addDot({start, d: link.d, reversed: link.ends[0] !== sender, broken, kind});
  }

  drawDots() {
    const context = this.canvas.getContext("2d");
    const scale = devicePixelRatio;
    const place = this.canvas.getBoundingClientRect();
    const [width, height] = [Math.round(place.width * scale), Math.round(place.height * scale)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, {width, height});
    context.clearRect(0, 0, width, height);
    const matrix = this.root.node().getScreenCTM();
    const now = performance.now();
    const dots = this.dots;
    this.dots = [];
    for (const dot of dots) {
      const age = (now - dot.start) / DOT_MS;
      if (age >= (dot.broken ? .5 : 1)) {
        if (!dot.broken) this.passCrossbar(dot);
        continue;
      }
      this.dots.push(dot);
      const {a, b, c} = this.curve(dot.link);
      const t = dot.link.ends[0] === dot.sender ? age : 1 - age;
      const at = i => (1 - t) ** 2 * a[i] + 2 * t * (1 - t) * c[i] + t ** 2 * b[i];
      const hidden = node => Math.hypot(at(0) - node[0], at(1) - node[1]) < node[2];  // dots do not cover names
      if (hidden(a) || hidden(b)) continue;
      const [radius, colour] = this.dotPaint(dot.kind);
      context.fillStyle = colour;
      context.beginPath();
      context.arc((matrix.a * at(0) + matrix.e - place.left) * scale, (matrix.d * at(1) + matrix.f - place.top) * scale,
        radius * scale, 0, 2 * Math.PI);
      context.fill();
    }
    this.frame = this.dots.length ? requestAnimationFrame(() => this.drawDots()) : null;
  }

  dotPaint(kind) { return [(kind === "hello" ? .75 : 1.3) * DOT_PX, this.dotColours[kind]]; }

  // A crossbar passes a packet on to all its other links.
  passCrossbar({link, sender, kind}) {
    const far = link.ends[0] === sender ? link.ends[1] : link.ends[0];
    if (this.view.nodes.get(far).kind !== "crossbar") return;
    for (const other of this.view.links.values()) {
      if (other !== link && other.ends.includes(far)) this.addDot(other, far, kind, performance.now());
    }
  }

  // Saves the drawing as a file, with the colours that it has now.
  save(file) { this.download(file, this.copy(() => {})); }

  // Saves the last seconds of the drawing as a file that plays them.
  saveFilm(file) {
    const untilMs = performance.now();
    const fromMs = Math.max(this.drawnMs, untilMs - KEPT_MS);
    const px = this.root.node().getScreenCTM().a;
    const paint = kind => {
      const [radius, colour] = this.dotPaint(kind);
      return [radius / px, colour];
    };
    const copy = this.copy((shape, original) => { shape.innerHTML += this.film.styleText(original, fromMs, untilMs); });
    copy.querySelector(".dots").innerHTML = this.film.dotsText(paint, fromMs, untilMs);
    this.download(file, copy);
  }

  // A copy of the drawing that needs no style sheet.  visit: called with each shape that has changed, and its original.
  copy(visit) {
    const copy = this.svg.node().cloneNode(true);
    const shapes = this.svg.node().querySelectorAll("*");
    copy.querySelectorAll("*").forEach((shape, i) => {
      const style = getComputedStyle(shapes[i]);
      for (const name of STYLED) shape.style.setProperty(name, style.getPropertyValue(name));
      if (this.film.styles.has(shapes[i])) visit(shape, shapes[i]);
    });
    copy.querySelectorAll(".hit").forEach(shape => shape.remove());
    copy.style.background = property("--paper");
    return copy;
  }

  download(file, svg) {
    const address = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], {type: "image/svg+xml"}));
    Object.assign(document.createElement("a"), {href: address, download: file}).click();
    URL.revokeObjectURL(address);
  }
}

export const percent = share => `${(100 * share).toFixed(share && share < .0995 ? 1 : 0)} %`;

export function bits(bps) {
  return bps >= 1e9 ? `${(bps / 1e9).toFixed(2)} Gbit/s` : bps >= 1e6 ? `${(bps / 1e6).toFixed(1)} Mbit/s` : `${Math.round(bps / 1e3)} kbit/s`;
}
