// The last seconds of the drawing, as elements that animate an SVG by themselves (SMIL), again and again.
export const KEPT_MS = 10_000;
export const DOT_MS = 450;  // of a packet on a link, on the page
const MOST_DOTS = 6000;
const STYLES = ["stroke", "stroke-width", "stroke-dasharray", "opacity"];

// Of the values of these, browsers animate no "none".
const NONE = {stroke: "transparent", "stroke-dasharray": "1px, 0px"};

const number = value => String(Number(value.toFixed(4)));
const list = values => values.map(number).join(";");

export class Film {
  constructor() {
    Object.assign(this, {dots: [], styles: new Map()});  // styles: [ms, style] of each shape that changed, oldest first
  }

  // dot: start in ms; d: its link's path; reversed: it begins at the path's end; broken: it gets half of the way.
  addDot(dot) {
    this.dots.push(dot);
    if (this.dots.length > MOST_DOTS) this.dots = this.dots.filter(({start}) => start > dot.start - KEPT_MS - DOT_MS).slice(-MOST_DOTS / 2);
  }

  addStyle(shape, style, ms) {
    if (!this.styles.has(shape)) this.styles.set(shape, []);
    const states = this.styles.get(shape);
    states.push([ms, {...states.at(-1)?.[1], ...style}]);
    while (states.length > 1 && states[1][0] < ms - KEPT_MS) states.shift();
  }

  // Carries out a change of a shape, with its style before and after.
  change(shape, change) {
    const read = () => {
      const style = getComputedStyle(shape);
      return Object.fromEntries(STYLES.map(name => [name, style.getPropertyValue(name)]));
    };
    if (!this.styles.has(shape)) this.addStyle(shape, read(), 0);
    change();
    this.addStyle(shape, read(), performance.now());
  }

  // The animation of each style that a shape changed between two times.
  styleText(shape, fromMs, untilMs) {
    const states = (this.styles.get(shape) ?? []).filter(([ms]) => ms < untilMs);
    const texts = STYLES.map(name => {
      const frames = [];
      for (const [ms, {[name]: value}] of states) {
        if (value === undefined || value === frames.at(-1)?.value) continue;
        if (ms <= fromMs) frames.length = 0;
        frames.push({at: frames.length ? (ms - fromMs) / (untilMs - fromMs) : 0, value});
      }
      const times = list(frames.map(({at}) => at));
      const values = frames.map(({value}) => value === "none" ? NONE[name] : value).join(";");
      return frames.length > 1 ? animate(name, times, values, untilMs - fromMs) : "";
    });
    return texts.join("");
  }

  // A circle for each packet.  paint: (kind) -> [radius, colour].
  dotsText(paint, fromMs, untilMs) {
    const lengthMs = untilMs - fromMs;
    return this.dots.map(({start, d, reversed, broken, kind}) => {
      const from = Math.max(start, fromMs);
      const until = Math.min(start + (broken ? .5 : 1) * DOT_MS, untilMs);
      if (from >= until) return "";
      const [begin, end] = [from, until].map(ms => (ms - fromMs) / lengthMs);
      const [first, last] = [from, until].map(ms => reversed ? 1 - (ms - start) / DOT_MS : (ms - start) / DOT_MS);
      const [radius, colour] = paint(kind);
      const motion = `path="${d}" calcMode="linear" keyPoints="${list([first, first, last, last])}" keyTimes="${list([0, begin, end, 1])}"`;
      return `<circle r="${number(radius)}" fill="${colour}" opacity="0"><animateMotion ${motion} dur="${lengthMs / 1000}s" repeatCount="indefinite"/>`
        + `${animate("opacity", list([0, begin, end]), "0;1;0", lengthMs)}</circle>`;
    }).join("");
  }
}

const animate = (name, times, values, lengthMs) =>
  `<animate attributeName="${name}" calcMode="discrete" keyTimes="${times}" values="${values}" dur="${lengthMs / 1000}s" repeatCount="indefinite"/>`;
