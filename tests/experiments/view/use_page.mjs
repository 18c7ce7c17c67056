// Uses parts of the pages without a browser; prints one line of JSON for each.
const [simulation, shared] = process.argv.slice(2);
const show = value => console.log(JSON.stringify(value));

// Every property and result of anything drawn is itself, and its text is empty.
const anything = new Proxy(function () {}, {
  get: (_, key) => key === Symbol.toPrimitive ? () => "" : anything,
  apply: () => anything,
  construct: () => anything,
});
globalThis.d3 = anything;

const {choicesOf, textOf} = await import(`${simulation}/address.js`);
const families = [
  {name: "star", networks: [{spec: "star:n=8", schemes: ["dr", "pr-gpi"]}]},
  {name: "fattree", networks: [{spec: "fattree:k=4", schemes: ["ecmp", "lbsp"]}]},
];
const address = "#net=star:n=8&pace=1&seed=7&do=20~restore~h0-h4;10~fail~h0-h4~silent=true";
show(choicesOf(address, families));
show(choicesOf(address, families).past.map(textOf));
for (const hash of ["#pace=fast", "#pace=1e9", "#seed=nan", "#seed=-1", "#do=1~fail~h0-h4~silent", "#do=;"]) show(choicesOf(hash.replace("#", "#net=star:n=8&"), families));
for (const hash of ["", "#net=100%", "#net=dcell:n=5,k=1&scheme=nope&do=1~fail~h0&path=h0~h1", "#net=fattree:k=4&scheme=fatpaths", "#net=fattree:k=4&scheme=lbsp:x=1", "#nett=star:n=8&toString"]) {
  show(choicesOf(hash, families));
}

const {Timeline} = await import(`${shared}/timeline.js`);
const timeline = new Timeline(null, {}, {simulated: true});
for (let i = 0; i < 100_000; i++) timeline.take({event: "routes", at_s: i / 1000, node: "h0", changes: 1, count: 2});
show(timeline.marks.length < 20_000);
for (const [at_s, state] of [[200, "down"], [200.1, "up"], [200.2, "down"]]) timeline.take({event: "link", link: "h0-h4", state, at_s});
show([timeline.incident.at, timeline.incident.restored]);

const {Panel} = await import(`${shared}/panel.js`);
const panel = new Panel(null, {links: new Map()});
const filled = [];
panel.fill = () => filled.push(panel.chosen);
panel.show("h0");
panel.refresh("h0");
panel.show("h1");
panel.refresh("h1");
await new Promise(resolve => setTimeout(resolve, 1000));
show(filled);

// Keeps what is put into it, and the words of all of that.
class Element {
  parts = [];
  style = {};
  textContent = "";
  append(...parts) { this.parts.push(...parts); }
  replaceChildren(...parts) { this.parts = parts; }
  insertRow() { this.append(new Element()); return this.parts.at(-1); }
  createTBody() { return this.insertRow(); }
  addEventListener() {}
  contains() { return false; }
  get words() { return [this.textContent, ...this.parts.map(part => part.words)].filter(Boolean).join(" "); }
}
const box = new Element();
globalThis.document = {createElement: () => new Element(), getElementById: id => id === "panel" ? box : anything};
Object.assign(globalThis, {matchMedia: anything, getComputedStyle: anything, ResizeObserver: anything, Option: Element});
const {View} = await import(`${shared}/view.js`);
const view = new View({drawn: {nodes: [], links: [], groups: []}, post: anything, clock: anything, simulated: false});
for (const event of [{event: "network", scheme: "ecmp", nodes: [], links: []}, {event: "scheme", scheme: "drill:d=2,m=1"}]) {
  view.take(event);
  show(box.words);
}
process.exit();
