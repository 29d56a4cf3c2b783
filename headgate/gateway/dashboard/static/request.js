// One request explained: its way through the stages, with the time of each and what was settled in it.

import { h, meter, refill, s, table } from "./dom.js";
import { clock, count, percent, rate, time, usd } from "./format.js";
import { ask, Refused } from "./session.js";

const STAGES = {
  admit: ["Admit", "known, and within the limits"],
  cache: ["Cache", "looked for an answer"],
  route: ["Route", "chose a model"],
  queue: ["Wait", "for room or a connection"],
  prompt: ["Prompt", "read, until the first token"],
  answer: ["Answer", "generated and sent"],
  reply: ["Reply", "sent"],
  deciding: ["Deciding", "looking up, choosing, or waiting"],
  failed: ["Failed", "before a model was settled on"],
  attempt: ["In vain"],
  unanswered: ["Waited", "for an answer, which did not come"],
};
const DECIDING = ["admit", "cache", "route"];
const VERDICTS = {
  exact: "The very same request was answered before.",
  semantic: "A request that means the same was answered before.",
  near: "A similar request was answered before, but its answer could not be served.",
  miss: "No answer was stored for anything like it.",
  bypass: "The cache had no part in it.",
};

export class RequestView {
  /** `id` as it stands in the address. */
  constructor(id) {
    this.path = `/admin/requests/${id}`;
    this.element = h("article", { class: "request" });
  }

  async look() {
    if (this.told) return;
    try {
      const trace = await ask(this.path);
      refill(this.element, this.show(trace));
      this.told = trace.request.status !== null;
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
      this.element.replaceChildren(back(), h("p", { class: "empty" }, error.message));
    }
  }

  show(trace) {
    const { request } = trace;
    const level = request.status >= 499 ? "bad" : request.status >= 400 ? "warn" : "good";
    const status = request.status === null ? "running" : `${request.status}${request.error ? ` ${request.error}` : ""}`;
    return [
      back(),
      h("h1", { class: "id" }, request.id),
      h(
        "p",
        { class: "lead" },
        h("span", { class: `badge ${level}` }, status),
        ` ${request.endpoint}${request.stream ? ", streamed" : ""}, at ${clock(request.at)}, ${request.status === null ? "for" : "in"} `,
        h("b", {}, time(request.total_s)),
      ),
      way(trace),
      h("div", { class: "panels" }, [admit(trace), cache(trace), route(trace), generate(trace), record(trace)]),
    ];
  }
}

const back = () => h("p", { class: "back" }, h("a", { href: "#/requests" }, "← Requests"));

/** The stages on one scale, and before those of the answer what was tried in vain. */
function way({ stages, failed, request }) {
  const total = request.total_s || 1;
  const attempts = failed.map(({ model, end, ...when }) => ({ name: "attempt", meaning: `${model}: ${end}`, ...when }));
  const again = failed.some(({ model }) => model === request.model);
  const before = stages.filter(({ name }) => DECIDING.includes(name));
  return h(
    "ol",
    { class: "way", "aria-label": "Its way" },
    [...before, ...attempts, ...stages.slice(before.length)].map(({ name, begin_s, end_s, ...own }) => {
      const unanswered = name === "prompt" && request.status !== null && request.first_token_s === null;
      const [title, usual] = STAGES[unanswered ? "unanswered" : name];
      const meaning = own.meaning ?? (again && name === "queue" ? "until it was tried again" : usual);
      const left = (100 * begin_s) / total;
      const width = Math.max(0.4, (100 * (end_s - begin_s)) / total);
      return h(
        "li",
        { class: name },
        h("b", {}, title),
        h("span", { class: "meaning" }, meaning),
        s(
          "svg",
          { class: "bar", width: "100%", height: 14, "aria-hidden": "true" },
          s("rect", { class: "groove", width: "100%", y: 6, height: 2 }),
          s("rect", { class: `stage ${name}`, x: `${Math.min(left, 99.6)}%`, width: `${width}%`, height: 14, rx: 2 }),
        ),
        h("span", { class: "number" }, time(end_s - begin_s)),
      );
    }),
  );
}

function part(title, text, ...more) {
  const kind = title === "Route" ? "panel wide" : "panel";
  return h("section", { class: kind, "aria-label": title }, h("h2", {}, title), text && h("p", {}, text), ...more);
}

function facts(entries) {
  const told = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, told.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function admit({ request, config, experiment, budget }) {
  const text = request.status === 429 && !request.model ? "Refused: it was beyond a limit or a budget." : "";
  return part(
    "Admit",
    text,
    facts([
      ["Team", request.team || "–"],
      ["Key", request.key],
      ["Configuration", h("code", {}, config)],
      ["Experiment", experiment],
      ["Budgets nearly spent", budget],
    ]),
  );
}

function cache({ cache: found }) {
  if (!found) return null;
  return part(
    "Cache",
    VERDICTS[found.verdict],
    facts([
      ["Verdict", found.verdict],
      ["Reason", found.reason],
      ["Similarity", found.similarity?.toFixed(4)],
      ["Error bound", found.bound === null ? null : percent(found.bound)],
      ["Age of the answer", found.age_s === null ? null : time(found.age_s)],
      ["Key", found.key && h("code", { title: found.key }, found.key.slice(0, 16))],
    ]),
  );
}

function route({ route: found, request, cache: looked, predicted_s }) {
  if (!looked || looked.age_s !== null) return null;
  if (!found) return part("Route", "", facts([["Model", request.model], ["Reason", request.route], ["Rule", "the request names this model"]]));
  const { quality } = found;
  const most = Math.max(...found.destinations.map(({ price }) => price?.score ?? 0), 1e-9);
  const rows = found.destinations.map(({ model, tier, excluded, good_enough, price }) => [
    h("span", { class: "name" }, model, h("small", {}, tier)),
    price ? time(price.queue_s) : "–",
    price ? time(price.prefill_s) : "–",
    price ? time(price.decode_s) : "–",
    price ? usd(price.usd) : "–",
    price ? h("span", { class: "gauge" }, meter(price.score / most, { label: `price ${time(price.score)}` }), time(price.score)) : "–",
    excluded ? excluded.replaceAll("_", " ") : good_enough ? "good enough" : "not good enough",
  ]);
  const columns = [
    ["Model", "head"],
    ["Queue", "number"],
    ["Prompt", "number"],
    ["Answer", "number"],
    ["Money", "number"],
    ["Price", "number wide"],
    ["", "muted"],
  ];
  return part(
    "Route",
    `${found.rule[0].toUpperCase()}${found.rule.slice(1)}.`,
    facts([
      ["Asked for", found.requested],
      ["Model", request.model],
      ["Reason", request.route],
      ["Task", found.task && `${found.task}, ${percent(found.confidence, 0)} sure`],
      ["Quality", quality && `small ${quality.small.toFixed(2)}, large ${quality.large.toFixed(2)} (by ${quality.source}); small is enough ${quality.enough.toFixed(2)}`],
      ["Threshold", found.threshold?.toFixed(2)],
      ["Conversation with", found.conversation],
      ["Then", found.fallbacks.join(", ")],
      ["Expected", predicted_s === null ? null : `${time(predicted_s)} until the last token`],
    ]),
    table("What each model would have cost", columns, rows, ""),
    found.otherwise.length ? h("ul", { class: "otherwise" }, found.otherwise.map((text) => h("li", {}, `${text}.`))) : null,
  );
}

function generate({ request, stages }) {
  if (!request.model) return null;
  const worked = stages.filter(({ name }) => name === "prompt" || name === "answer");
  const seconds = worked.reduce((sum, { begin_s, end_s }) => sum + end_s - begin_s, 0);
  return part(
    "Generate",
    "",
    facts([
      ["Model", request.model],
      ["Prompt", `${count(request.prompt_tokens)} tokens${request.cached_tokens ? `, ${count(request.cached_tokens)} of them cached` : ""}`],
      ["Answer", `${count(request.completion_tokens)} tokens`],
      ["Speed", seconds > 0 && request.completion_tokens ? `${rate(request.completion_tokens / seconds)} tokens/s, its prompt read too` : null],
      ["First token", time(request.first_token_s)],
    ]),
  );
}

function record({ request, device_s }) {
  if (request.status === null) return null;
  return part(
    "Record",
    "",
    facts([
      ["Cost", request.usd ? usd(request.usd) : "nothing"],
      ["Device", device_s ? time(device_s) : "none"],
      ["Total", time(request.total_s)],
    ]),
  );
}
