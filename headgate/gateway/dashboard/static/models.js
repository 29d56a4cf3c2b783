// Each model: how full it is, and how fast.

import { h, meter, table } from "./dom.js";
import { count, percent, rate, short, time } from "./format.js";

const LEVELS = { ready: "good", loading: "warn", failed: "bad", off: "" };
const BREAKERS = { half_open: "tried again after failures", open: "left alone after failures" };

export function modelsPanel({ models }) {
  const rows = models.map((model) => [
    h(
      "span",
      { class: "name" },
      h("i", { class: `dot ${well(model) ? LEVELS[model.state] : "bad"}` }),
      model.id,
      h("small", {}, BREAKERS[model.breaker] ?? (model.state === "ready" ? told(model) : model.state)),
    ),
    count(model.running),
    count(model.waiting),
    kv(model.kv_usage),
    percent(model.prefix_hit_ratio),
    rate(model.generated_tokens_s),
    pair(model.first_token),
    pair(model.inter_token),
    short(model.requests),
    short(model.generated_tokens),
  ]);
  const columns = [
    ["Model", "head"],
    ["Running", "number"],
    ["Waiting", "number"],
    ["KV cache", "number wide"],
    ["Prefix hits", "number"],
    ["Tokens/s", "number"],
    ["First token p50, p99", "number pair"],
    ["Between tokens p50, p99", "number pair"],
    ["Requests", "number"],
    ["Generated", "number"],
  ];
  return [table("Models", columns, rows, "No model is configured.")];
}

const well = ({ breaker, upstream }) => breaker === "closed" && upstream?.well !== false;
const told = ({ tier, upstream }) => [tier, upstream && "upstream"].filter(Boolean).join(", ");

function kv(usage) {
  if (usage === null) return percent(null);
  const level = usage > 0.95 ? "bad" : usage > 0.8 ? "warn" : "";
  return h("span", { class: "gauge" }, meter(usage, { label: `KV cache ${percent(usage)} full`, level }), percent(usage));
}

const pair = ({ p50, p99 }) => (p50 === null ? time(null) : `${time(p50)}, ${time(p99)}`);
