// What the answer cache said, and how often it was wrong.

import { h, s, shares, table } from "./dom.js";
import { bytes, count, percent, short, time, usd } from "./format.js";

const VERDICTS = [
  ["exact", "first", "the same request"],
  ["semantic", "second", "a request that means the same"],
  ["near", "third", "similar, but not served"],
  ["miss", "rest", "nothing like it"],
  ["bypass", "none", "no part in the cache"],
];

export function cachePanel({ cache }) {
  const all = cache.lookups.reduce((total, entry) => total + entry.count, 0);
  if (!all) return [h("p", { class: "empty" }, "Nothing was looked up yet."), facts(cache)];
  const rows = VERDICTS.map(([verdict, kind, meaning]) => {
    const entries = cache.lookups.filter((entry) => entry.verdict === verdict);
    return { verdict, kind, meaning, entries, total: entries.reduce((sum, entry) => sum + entry.count, 0) };
  }).filter(({ total }) => total);
  return [
    shares(rows.map(({ verdict, kind, total }) => [verdict, kind, total]), all, 14),
    table(
      "Verdicts",
      [["Verdict", "head"], ["Why", "muted"], ["Look-ups", "number"], ["Share", "number"]],
      rows.map(({ verdict, kind, meaning, entries, total }) => [
        h("span", { class: "name", title: meaning }, h("i", { class: `swatch ${kind}` }), verdict),
        reasons(entries),
        short(total),
        percent(total / all),
      ]),
      "",
    ),
    error(cache.error),
    facts(cache),
  ];
}

function reasons(entries) {
  const told = [...entries].sort((a, b) => b.count - a.count).filter(({ reason }) => reason);
  return told.slice(0, 3).map(({ reason, count: of }) => `${reason} ${short(of)}`).join(", ") || "";
}

/** The interval of the wrong share, beside the share that is accepted. */
function error(found) {
  if (!found) return h("p", { class: "beside" }, "Nothing is served by meaning here, so that no error is measured.");
  if (!found.hits) return h("p", { class: "beside" }, `No answer was served by meaning yet; ${percent(found.accepted)} may be wrong.`);
  const most = Math.min(1, Math.max(2 * found.accepted, 1.1 * found.upper));
  const at = (share) => `${(100 * Math.min(1, share / most)).toFixed(2)}%`;
  const level = found.lower > found.accepted ? "bad" : found.upper > found.accepted ? "" : "good";
  const place = found.accepted / most;
  const anchor = place < 0.15 ? "start" : place > 0.85 ? "end" : "middle";
  const label = `between ${percent(found.lower)} and ${percent(found.upper)}, ${percent(found.accepted)} is accepted`;
  const width = `${(100 * Math.max(0.004, Math.min(1, found.upper / most) - found.lower / most)).toFixed(2)}%`;
  return h(
    "div",
    { class: "error" },
    h("h3", {}, "Wrong among those served by meaning"),
    s(
      "svg",
      { class: `interval ${level}`, width: "100%", height: 34, role: "img", "aria-label": label },
      s("line", { class: "grid", x1: 0, x2: "100%", y1: 10, y2: 10 }),
      s("rect", { class: "level", x: at(found.lower), width, y: 6, height: 8, rx: 2 }),
      found.labelled === null ? null : s("circle", { class: "dot", cx: at(found.labelled), cy: 10, r: 4 }),
      s("line", { class: "mark", x1: at(found.accepted), x2: at(found.accepted), y1: 1, y2: 19 }),
      s("text", { class: "axis", x: at(found.accepted), y: 31, "text-anchor": anchor }, `accepted ${percent(found.accepted)}`),
    ),
    h(
      "p",
      { class: "beside" },
      h("b", {}, `${percent(found.lower)} to ${percent(found.upper)}`),
      found.labelled === null ? "" : `, ${percent(found.labelled)} of the labels`,
      `: ${count(found.labels)} labels of ${count(found.audited)} audits of ${count(found.hits)} hits`,
      found.quarantined ? `; ${count(found.quarantined)} answers held back` : "",
      found.threshold ? "; the threshold was raised" : "",
      ".",
    ),
  );
}

function facts(cache) {
  const failing = Object.entries(cache.faults).filter(([, of]) => of);
  const entries = [
    ["Saved", `${time(cache.saved_device_s)} of the device, ${usd(cache.saved_usd)}, ${short(cache.saved_tokens)} tokens`],
    ["Held", `${short(cache.entries)} answers in ${cache.store || "no store"}`, cache.bytes !== null && `${bytes(cache.bytes)} of ${bytes(cache.max_bytes)}`],
    cache.indexed !== null && ["Found by meaning", `${short(cache.indexed)} questions`],
    failing.length && ["Faults", failing.map(([part, of]) => `${part} ${count(of)}`).join(", ")],
  ].filter(Boolean);
  return h(
    "dl",
    { class: "facts" },
    entries.map(([name, ...told]) => h("div", {}, h("dt", {}, name), h("dd", {}, told.filter(Boolean).join(", ")))),
  );
}
