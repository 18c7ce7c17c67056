// The page of a run: its events come from the web server (docs/watching.md).
import {notice} from "./notice.js";
import {openResults} from "./results.js";
import {listen, post, request, token} from "./session.js";
import {View} from "./view.js";

const LOST_MS = 2500;
const byId = id => document.getElementById(id);

const page = await request("/page.json");
if (!page.ok) {
  notice((await page.text()).trim(), {stays: true});
  throw new Error(page.statusText);
}
const data = await page.json();
byId("report-token").value = token;

// Events have seconds of CLOCK_MONOTONIC; labels are wall time.
let offsetS = 0;
let startS = 0;
const clock = {
  now: () => startS + performance.now() / 1000,
  windowS: () => 60,
  label(seconds, {coarse = false} = {}) {
    const wallS = seconds + offsetS;
    const time = new Date(1000 * wallS).toLocaleTimeString([], {hour12: false, hour: "2-digit", minute: "2-digit", second: "2-digit"});
    const ms = Math.floor(1000 * ((wallS % 1) + 1) % 1000);
    return coarse ? time : `${time}.${String(ms).padStart(3, "0")}`;
  },
};
const view = new View({drawn: data.drawing, post, clock, simulated: false});

function fillSchemes(current) {
  const select = byId("scheme");
  const known = new Set([current, ...data.schemes]);
  select.replaceChildren(...[...known].map(name => new Option(name, name, name === current, name === current)));
  select.disabled = data.schemes.length < 2;
  select.title = select.disabled ? "This run has no data plane that could choose ports by another scheme" : "";
}

function message(event) {
  if (event.event === "network") {
    if (view.network) return location.reload();  // the view was started again
    offsetS = event.wall_minus_monotonic_s;
  }
  if (event.event === "now") startS = event.at_s - performance.now() / 1000;
  if ("scheme" in event) fillSchemes(event.scheme);
  view.take(event);
  return !view.ended;
}

// A command that takes a run down ends its views at once, so the page may only see its connection end.
let lost = 0;
function failed() {
  byId("health").className = "wrong";
  byId("health").textContent = "no connection";
  lost ||= setTimeout(() => notice("The run has been taken down, or this view of it has ended.", {stays: true}), LOST_MS);
}

function opened() {
  if (lost) byId("notice").hidden = true;
  clearTimeout(lost);
  lost = 0;
}

byId("scheme").addEventListener("change", async event => {
  const reply = await post({do: "scheme", scheme: event.target.value});
  if (reply.error) fillSchemes(view.network.scheme);
});
byId("show-results").addEventListener("click", openResults);
listen({opened, message, failed});
