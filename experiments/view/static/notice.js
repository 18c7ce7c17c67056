// A message over the page.
const SHOWN_MS = 6000;
let hiding = 0;

export function notice(text, {stays = false} = {}) {
  const box = document.getElementById("notice");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(hiding);
  if (!stays) hiding = setTimeout(() => { box.hidden = true; }, SHOWN_MS);
}
