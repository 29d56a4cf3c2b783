// Models that other servers run: whether they are well, and how attempts at them ended.

import { h, table } from "./dom.js";
import { count, percent, short } from "./format.js";

const BREAKERS = { closed: "", half_open: "tried again after failures", open: "left alone after failures" };

/** Nothing where there is no upstream. */
export function upstreamsPanel({ models }) {
  const rows = models.filter(({ upstream }) => upstream).map(row);
  if (!rows.length) return [];
  const columns = [
    ["Upstream", "head"],
    ["State", ""],
    ["Attempts", "number"],
    ["Answered", "number"],
    ["Faults", "muted"],
    ["Retries", "number"],
    ["Hedges, won", "number"],
  ];
  return [table("Upstreams", columns, rows, "")];
}

function row({ id, breaker, upstream }) {
  const attempts = Object.values(upstream.ends).reduce((sum, of) => sum + of, 0);
  const faults = Object.entries(upstream.ends).filter(([end]) => end !== "answered");
  const ill = upstream.well === false || breaker !== "closed";
  return [
    h("span", { class: "name" }, h("i", { class: `dot ${ill ? "bad" : "good"}` }), id),
    BREAKERS[breaker] || (upstream.well === false ? "checks find it ill" : "well"),
    short(attempts),
    attempts ? percent((upstream.ends.answered ?? 0) / attempts) : percent(null),
    faults.sort((a, b) => b[1] - a[1]).map(([end, of]) => `${end} ${short(of)}`).join(", ") || "none",
    count(upstream.retries),
    `${count(upstream.hedges)}, ${count(upstream.hedges_won)}`,
  ];
}
