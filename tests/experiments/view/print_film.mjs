// Prints an SVG whose elements animate three packets and a link that fails, made by film.js.
const {Film} = await import(process.argv[2]);
const film = new Film();
const d = "M0,0Q1,0 2,0";
film.addStyle("h0-h4", {stroke: "rgb(1, 2, 3)", "stroke-dasharray": "none", opacity: "1"}, 0);
film.addStyle("h0-h4", {stroke: "rgb(9, 2, 3)", "stroke-dasharray": "2px, 1px"}, 4_000);
film.addStyle("h0-h4", {stroke: "rgb(1, 2, 3)"}, 9_000);
film.addStyle("h0-h1", {stroke: "rgb(1, 2, 3)"}, 1_000);
film.addDot({start: 100, d, reversed: false, broken: false, kind: "hello"});
film.addDot({start: 3_000, d, reversed: false, broken: false, kind: "hello"});
film.addDot({start: 5_000, d, reversed: true, broken: true, kind: "news"});
const links = ["h0-h4", "h0-h1"].map(name => `<path id="${name}" d="${d}">${film.styleText(name, 2_000, 12_000)}</path>`);
const dots = film.dotsText(kind => [kind === "hello" ? 1 : 2, "#123456"], 2_000, 12_000);
console.log(`<svg xmlns="http://www.w3.org/2000/svg">${links.join("")}${dots}</svg>`);
