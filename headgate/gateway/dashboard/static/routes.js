// Which model was chosen for which reason, and what that saved beside the large model's price.

import { h, meter, table } from "./dom.js";
import { percent, short, time, usd } from "./format.js";

const MOST = 10;

export function routesPanel({ routes }) {
  const all = routes.reduce((total, route) => total + route.requests, 0);
  const saved = routes.reduce((total, route) => total + route.saved_device_s, 0);
  const money = routes.reduce((total, route) => total + route.saved_usd, 0);
  const rows = shown(routes).map((route) => [
    h("span", { class: "name" }, route.reason, h("small", {}, route.model)),
    h(
      "span",
      { class: "gauge" },
      meter(route.requests / all, { label: percent(route.requests / all) }),
      short(route.requests),
    ),
    time(route.saved_device_s),
    usd(route.saved_usd),
  ]);
  const columns = [
    ["Reason", "head"],
    ["Requests", "number wide"],
    ["Device saved", "number"],
    ["Money saved", "number"],
  ];
  const summary = h(
    "p",
    { class: "beside" },
    h("b", {}, `${time(saved)} of the device, ${usd(money)}`),
    " saved beside what the cheapest large model would have cost, at the prices of each decision.",
  );
  return [table("Routes", columns, rows, "Nothing was routed yet."), ...(all ? [summary] : [])];
}

/** The most frequent ones, and the others as one. */
function shown(routes) {
  if (routes.length <= MOST) return routes;
  const others = routes.slice(MOST - 1);
  const sum = (name) => others.reduce((total, route) => total + route[name], 0);
  const together = { reason: `${others.length} others`, model: "" };
  for (const name of ["requests", "saved_device_s", "saved_usd"]) together[name] = sum(name);
  return [...routes.slice(0, MOST - 1), together];
}
