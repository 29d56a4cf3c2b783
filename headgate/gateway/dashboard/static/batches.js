// Batches: what became of their lines so far.

import { h, shares, table } from "./dom.js";
import { clock, count, percent } from "./format.js";

const LEVELS = { in_progress: "first", finalizing: "first", completed: "good", failed: "bad", expired: "bad", cancelled: "warn", cancelling: "warn" };

/** Nothing where there was no batch. */
export function batchesPanel({ batches }) {
  if (!batches.length) return [];
  const columns = [
    ["Batch", "head"],
    ["Status", ""],
    ["Made", ""],
    ["Lines", "wide lines"],
    ["Done", "number"],
    ["Failed", "number"],
    ["Running", "number"],
    ["Left", "number"],
  ];
  return [table("Batches", columns, batches.map(row), "")];
}

function row({ id, team, endpoint, status, at, lines, completed, failed, running }) {
  const left = Math.max(0, lines - completed - failed - running);
  const parts = [
    ["done", "first", completed],
    ["failed", "bad", failed],
    ["running", "second", running],
    ["left", "none", left],
  ].filter(([, , of]) => of);
  return [
    h("span", { class: "name", title: id }, h("i", { class: `dot ${LEVELS[status] ?? ""}` }), id.slice(0, 14), "…", h("small", {}, `${team}, ${endpoint}`)),
    status.replaceAll("_", " "),
    clock(at),
    lines
      ? h("span", { class: "gauge" }, shares(parts, lines, 8), percent((completed + failed) / lines, 0))
      : h("span", { class: "muted" }, "not counted yet"),
    count(completed),
    failed ? h("b", { class: "bad" }, count(failed)) : "0",
    count(running),
    count(left),
  ];
}
