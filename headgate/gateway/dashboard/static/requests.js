// The requests that ended last, by what one looks for.

import { h, refill, table } from "./dom.js";
import { clock, count, time, usd } from "./format.js";
import { ask } from "./session.js";

const COLUMNS = [
  ["Time", "head"],
  ["Request", ""],
  ["Team", ""],
  ["Model", ""],
  ["Route", "muted"],
  ["Cache", ""],
  ["Tokens in, out", "number"],
  ["First token", "number"],
  ["Total", "number"],
  ["Cost", "number"],
  ["Status", "number"],
];

export class RequestsView {
  constructor() {
    this.found = h("div", { class: "found" });
    this.told = h("p", { class: "beside", role: "status" });
    this.filters = {
      status: choice("Outcome", [["", "all"], ["running", "running"], ["ok", "answered"], ["refused", "refused"], ["failed", "failed"], ["left", "client left"]]),
      verdict: choice("Cache", [["", "all"], ...["exact", "semantic", "near", "miss", "bypass"].map((v) => [v, v])]),
      model: choice("Model", [["", "all"]]),
      team: choice("Team", [["", "all"]]),
    };
    const id = h("input", { name: "id", type: "search", placeholder: "req_…", autocomplete: "off", spellcheck: "false" });
    const form = h(
      "form",
      { class: "filters" },
      Object.values(this.filters).map(({ element }) => element),
      h("label", { class: "grow" }, h("span", {}, "Explain the request"), id),
      h("button", { type: "submit" }, "Explain"),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (id.value.trim()) location.hash = `#/requests/${encodeURIComponent(id.value.trim())}`;
    });
    form.addEventListener("change", (event) => event.target.name !== "id" && this.refresh());
    this.element = h("div", { class: "requests" }, h("h1", {}, "Requests"), form, this.found, this.told);
  }

  async look(live) {
    offer(this.filters.model, live.models.map(({ id }) => id));
    offer(this.filters.team, live.teams.map(({ name }) => name));
    await this.refresh();
  }

  async refresh() {
    const query = new URLSearchParams({ limit: 100 });
    for (const [name, { field }] of Object.entries(this.filters)) if (field.value) query.set(name, field.value);
    const { requests, remembered } = await ask(`/admin/requests?${query}`);
    this.told.textContent = `${count(requests.length)} shown; the last ${count(remembered)} that ended are remembered. No content is kept.`;
    // Whoever walks through the list by keyboard is not led elsewhere by what came meanwhile.
    if (this.found.querySelector(":focus-visible")) return;
    const empty = remembered ? "None of the requests is like that." : "No request has ended yet.";
    refill(this.found, [table("Requests", COLUMNS, requests.map(row), empty)]);
  }
}

function row(request) {
  return [
    clock(request.at),
    h("a", { href: `#/requests/${encodeURIComponent(request.id)}`, title: request.id }, shortId(request.id)),
    request.team,
    request.model || "–",
    request.route || "–",
    h("span", { class: `verdict ${request.verdict}` }, request.verdict || "–"),
    request.prompt_tokens ? `${count(request.prompt_tokens)}, ${count(request.completion_tokens)}` : "–",
    time(request.first_token_s),
    time(request.total_s),
    request.usd ? usd(request.usd) : "–",
    h("span", { class: request.status >= 499 ? "bad" : request.status >= 400 ? "warn" : "", title: request.error ?? "" }, request.status ?? "running"),
  ];
}

export const shortId = (id) => (id.length > 14 ? `${id.slice(0, 12)}…` : id);

function choice(title, options) {
  const field = h("select", { name: title.toLowerCase() }, options.map(([value, text]) => h("option", { value }, text)));
  return { field, element: h("label", {}, h("span", {}, title), field) };
}

/** Have these to choose from, and keep what is chosen. */
function offer({ field }, names) {
  const there = [...field.options].map(({ value }) => value);
  for (const name of names) if (!there.includes(name)) field.append(h("option", { value: name }, name));
}
