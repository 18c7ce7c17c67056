// Requests with the token of the address.  It stays in this tab: browsers send a cookie to every port of a machine.
import {notice} from "./notice.js";

const KEY = "weft-token", RETRY_MS = 1000;

const inAddress = new URLSearchParams(location.hash.slice(1)).get("token");
if (inAddress) {
  sessionStorage.setItem(KEY, inAddress);
  history.replaceState(null, "", location.pathname);
}
addEventListener("hashchange", () => location.reload());  // the address of another view, opened in this tab

export const token = sessionStorage.getItem(KEY) ?? "";

export const request = (path, {headers = {}, ...options} = {}) =>
  fetch(path, {...options, headers: {...headers, Authorization: `Bearer ${token}`}});

// Sends a request about the run; the reply has `error` if that fails.
export async function post(action, {quiet = false} = {}) {
  let reply;
  try {
    const answer = await request("/do", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(action)});
    reply = answer.ok ? await answer.json() : {error: (await answer.text()).trim() || answer.statusText};
  } catch (error) {
    console.warn(error);
    reply = {error: "no connection"};
  }
  if (reply.error && !quiet) notice(reply.error);
  return reply;
}

function proceeds(message, event) {
  try {
    return message(JSON.parse(event.slice("data: ".length)));
  } catch (error) {
    reportError(error);  // the stream goes on
    return true;
  }
}

// Reads /events, which EventSource cannot: it sends no header.  Connects again until a handler returns false.
export async function listen({opened, message, failed}) {
  for (;;) {
    try {
      const answer = await request("/events");
      if (!answer.ok) throw new Error(answer.statusText);
      opened();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", part; !(part = await reader.read()).done;) {
        const events = (rest + part.value).split("\n\n");
        rest = events.pop();
        for (const event of events) if (!proceeds(message, event)) return;
      }
    } catch (error) {
      console.warn(error);
    }
    failed();
    await new Promise(resolve => setTimeout(resolve, RETRY_MS));
  }
}
