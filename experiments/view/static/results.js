// The runs that the results store has, as tables.
import {post} from "./session.js";

const byId = id => document.getElementById(id);
const FIRST = ["fidelity"];
let known = null;

export async function openResults() {
  const dialog = byId("results");
  dialog.showModal();
  byId("results-note").textContent = "reading ...";
  known = await post({do: "results"});
  const names = Object.keys(known.experiments ?? {});
  byId("experiment").replaceChildren(...names.map(name => new Option(`${name} (${known.experiments[name].length})`, name)));
  byId("report").hidden = !known.report;
  byId("results-note").textContent = known.error ?? (names.length ? `from ${known.folder}` : `Nothing is stored in ${known.folder}; weft run measures.`);
  show();
}

function show() {
  const rows = known?.experiments?.[byId("experiment").value] ?? [], table = byId("rows");
  table.replaceChildren();
  if (!rows.length) return;
  const columns = [...new Set(rows.flatMap(Object.keys))].sort((a, b) => FIRST.includes(b) - FIRST.includes(a));
  const head = table.createTHead().insertRow(), body = table.createTBody();
  const number = name => rows.every(row => typeof (row[name] ?? 0) === "number");
  for (const name of columns) head.append(Object.assign(document.createElement("th"), {textContent: name, className: number(name) ? "n" : ""}));
  for (const row of rows) {
    const line = body.insertRow();
    for (const name of columns) {
      const value = row[name], cell = line.insertCell();
      cell.textContent = typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(5) : Array.isArray(value) ? `${value.length} values` : value ?? "";
      cell.className = number(name) ? "n" : value === "FAIL" ? "wrong" : value === "WARN" ? "meanwhile" : "";
    }
  }
}

byId("experiment").addEventListener("change", show);
byId("close-results").addEventListener("click", () => byId("results").close());
