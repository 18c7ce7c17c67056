// Uses parts of the pages without a browser; prints one line of JSON for each.
const [simulation, shared] = process.argv.slice(2);
const show = value => console.log(JSON.stringify(value));

// Every property and result of anything drawn is itself.
const anything = new Proxy(() => {}, {get: () => anything, apply: () => anything});
globalThis.d3 = anything;

const {choicesOf, textOf} = await import(`${simulation}/address.js`);
const address = "#net=star:n=8&pace=1&seed=7&do=20~restore~h0-h4;10~fail~h0-h4~silent=true";
show(choicesOf(address));
show(choicesOf(address).past.map(textOf));
for (const hash of ["#net=100%", "#pace=fast", "#pace=1e9", "#seed=nan", "#seed=-1", "#do=1~fail~h0-h4~silent", "#do=;"]) show(choicesOf(hash));

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
process.exit();
