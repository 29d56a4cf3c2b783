// Everything at a glance: the present beside the last minutes, then who and what made it so.

import { batchesPanel } from "./batches.js";
import { cachePanel } from "./cache.js";
import { Chart, Moment } from "./chart.js";
import { h, refill } from "./dom.js";
import { clock, count, percent, rate, short, span, time, timeParts, usd } from "./format.js";
import { modelsPanel } from "./models.js";
import { routesPanel } from "./routes.js";
import { systemPanel, problems } from "./system.js";
import { teamsPanel } from "./teams.js";
import { upstreamsPanel } from "./upstreams.js";

const column = (name) => (points) => points.columns[name] ?? [];

const FIGURES = [
  {
    title: "Requests",
    value: ({ traffic }) => [rate(traffic.requests_s), "/s"],
    beside: ({ traffic }) => `${short(traffic.requests)} since the start`,
    format: rate,
    series: [{ name: "per second", kind: "first", values: column("requests_s") }],
  },
  {
    title: "Tokens",
    value: ({ traffic }) => [rate(traffic.generated_tokens_s), "/s generated"],
    beside: ({ traffic }) => `${short(traffic.generated_tokens)} generated, ${short(traffic.prompt_tokens)} read since the start`,
    format: rate,
    series: [
      { name: "read", kind: "second", values: column("prompt_tokens_s") },
      { name: "generated", kind: "first", values: column("generated_tokens_s") },
    ],
  },
  {
    title: "In flight",
    value: ({ traffic }) => [count(traffic.in_flight), ""],
    beside: ({ models }) =>
      `${count(sum(models, "running"))} computed, ${count(sum(models, "waiting"))} waiting, ` +
      `${count(sum(models, "background"))} in the background`,
    format: count,
    series: [
      { name: "waiting for room", kind: "second", values: column("waiting") },
      { name: "in flight", kind: "first", values: column("in_flight") },
    ],
  },
  {
    title: "KV cache in use",
    value: ({ models }) => percentParts(Math.max(0, ...models.map((model) => model.kv_usage))),
    beside: () => "of the model whose cache is fullest",
    format: (value) => percent(value, 0),
    most: 0.1,
    series: [{ name: "in use", kind: "first", values: column("kv_usage") }],
  },
  {
    title: "Time to first token",
    value: ({ traffic }) => timeParts(traffic.first_token.p50),
    beside: ({ traffic }) => observed(traffic, traffic.first_token),
    format: time,
    series: percentiles("first_token"),
  },
  {
    title: "Time between tokens",
    value: ({ traffic }) => timeParts(traffic.inter_token.p50),
    beside: ({ traffic }) => observed(traffic, traffic.inter_token),
    format: time,
    series: percentiles("inter_token"),
  },
  {
    title: "From the answer cache",
    value: ({ traffic }) => percentParts(traffic.hit_ratio),
    beside: ({ cache }) => `${time(cache.saved_device_s)} of the device and ${usd(cache.saved_usd)} saved`,
    format: (value) => percent(value, 0),
    most: 1,
    series: [{ name: "of the last minute", kind: "first", values: column("hit_ratio") }],
  },
  {
    title: "Refused or failed",
    value: ({ traffic }) => [rate(traffic.refused_s + traffic.failed_s), "/s"],
    beside: ({ traffic }) => `${short(traffic.refused)} refused, ${short(traffic.failed)} failed since the start`,
    format: rate,
    series: [
      { name: "refused", kind: "second", values: column("refused_s") },
      { name: "failed", kind: "bad", values: column("failed_s") },
    ],
  },
];

function percentiles(name) {
  return [
    { name: "p99", kind: "third", values: column(`${name}_p99`) },
    { name: "p90", kind: "second", values: column(`${name}_p90`) },
    { name: "p50", kind: "first", values: column(`${name}_p50`) },
  ];
}

const sum = (entries, name) => entries.reduce((total, entry) => total + entry[name], 0);

function percentParts(share) {
  const text = percent(share);
  return text.endsWith("%") ? [text.slice(0, -2), "%"] : [text, ""];
}

function observed({ window_s }, { count: of }) {
  if (!of) return "none in the last minute";
  return `median of ${short(of)} in the last ${window_s > 50 ? "minute" : `${Math.max(1, Math.round(window_s))} s`}`;
}

class Figure {
  constructor(spec, moment) {
    this.spec = spec;
    this.value = h("b");
    this.unit = h("span", { class: "unit" });
    this.beside = h("p", { class: "beside" });
    this.chart = new Chart({ ...spec, moment });
    this.element = h(
      "section",
      { class: "figure", "aria-label": spec.title },
      h("h2", {}, spec.title),
      h("p", { class: "value" }, this.value, this.unit),
      this.beside,
      this.chart.element,
    );
  }

  show(live, points) {
    [this.value.textContent, this.unit.textContent] = this.spec.value(live);
    this.beside.textContent = this.spec.beside(live);
    this.chart.draw(points);
  }
}

export class Overview {
  constructor(history) {
    this.history = history;
    const moment = (this.shown = new Moment());
    this.gone = history.gone;
    this.figures = FIGURES.map((spec) => new Figure(spec, moment));
    this.panels = [
      [modelsPanel, "Models", "wide"],
      [upstreamsPanel, "Upstreams", "wide"],
      [cachePanel, "Answer cache", ""],
      [routesPanel, "Routes", ""],
      [teamsPanel, "Teams", "wide"],
      [batchesPanel, "Batches", "wide"],
      [systemPanel, "Configuration", "wide"],
    ].map(([make, title, kind]) => {
      const body = h("div");
      return { make, body, element: h("section", { class: `panel ${kind}`, "aria-label": title }, h("h2", {}, title), body) };
    });
    this.problems = h("div", { class: "problems", role: "status" });
    this.since = h("span");
    this.moment = h("time");
    moment.addEventListener("move", () => {
      this.moment.textContent = moment.at === null ? "" : clock(history.columns.at[moment.at] ?? 0);
    });
    this.element = h(
      "div",
      { class: "overview" },
      h("h1", { class: "unseen" }, "Overview"),
      this.problems,
      h("div", { class: "figures" }, this.figures.map((figure) => figure.element)),
      h("p", { class: "span" }, this.since, this.moment, h("span", {}, "now")),
      h("div", { class: "panels" }, this.panels.map((panel) => panel.element)),
    );
  }

  async look(live) {
    this.live = live;
  }

  /** After it is on the page, where it has a size. */
  drawn() {
    refill(this.problems, problems(this.live));
    this.shown.shift(this.history.gone - this.gone);
    this.gone = this.history.gone;
    this.since.textContent = `${span(this.history.size * this.live.history.interval_s)} ago`;
    for (const figure of this.figures) figure.show(this.live, this.history);
    for (const { make, body, element } of this.panels) {
      const made = make(this.live);
      element.hidden = made.length === 0;
      refill(body, made);
    }
  }
}
