// Teams against their budgets, and what they were refused.

import { h, meter, table } from "./dom.js";
import { count, percent, short, time, usd } from "./format.js";

const UNITS = {
  daily_usd: ["today", usd],
  monthly_usd: ["this month", usd],
  daily_device_s: ["device today", time],
  monthly_device_s: ["device this month", time],
};

export function teamsPanel({ teams, teams_in_all }) {
  const rows = teams.map((team) => [
    h("span", { class: "name" }, team.name),
    team.budgets.length ? h("ul", { class: "budgets" }, team.budgets.map((budget) => line(team, budget))) : "no budget",
    short(team.requests),
    team.requests ? percent(team.hits / team.requests) : percent(null),
    short(team.prompt_tokens + team.completion_tokens),
    time(team.device_s),
    usd(team.usd),
    refused(team),
  ]);
  const columns = [
    ["Team", "head"],
    ["Budgets", "wide budget"],
    ["Answers", "number"],
    ["Cached", "number"],
    ["Tokens", "number"],
    ["Device", "number"],
    ["Cost", "number"],
    ["Refused", "number"],
  ];
  const more = teams_in_all - teams.length;
  return [
    table("Teams", columns, rows, "Nobody has asked yet."),
    ...(more > 0 ? [h("p", { class: "beside" }, `${count(more)} teams more, which used less.`)] : []),
  ];
}

function line(team, budget) {
  const share = budget.limit ? budget.spent / budget.limit : 1;
  const level = share >= 1 ? "bad" : share >= team.soft_percent / 100 ? "warn" : "";
  const [when, unit] = UNITS[budget.bound];
  const told = `${unit(budget.spent)} of ${unit(budget.limit)} ${when}`;
  const spent = { block: "then refused", downgrade: "then the small model", queue: "then in idle time" }[team.on_exceed];
  return h(
    "li",
    { title: `renewed on ${budget.renewed}; warned at ${team.soft_percent} %, ${spent}` },
    meter(share, { label: `${told}, ${percent(share)}`, level, mark: team.soft_percent / 100 }),
    h("span", {}, h("b", { class: level }, percent(share)), ` ${told}`, budget.reserved ? `, ${unit(budget.reserved)} set aside` : ""),
  );
}

function refused({ refused: by }) {
  const entries = Object.entries(by);
  if (!entries.length) return "0";
  const total = entries.reduce((sum, [, of]) => sum + of, 0);
  return h("span", { class: "stack" }, h("b", { class: "warn" }, count(total)), h("small", {}, entries.map(([what]) => what.replaceAll("_", " ")).join(", ")));
}
