// Requests with the token of the address.  It stays in this tab: browsers send a cookie to every port of a machine.
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
