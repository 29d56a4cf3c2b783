// The configuration that holds, the parts of the server, and what is wrong with either.

import { h, table } from "./dom.js";
import { count, span } from "./format.js";

const LEVELS = { ready: "good", loading: "warn", failed: "bad", off: "" };

/** What an operator should know before anything else. */
export function problems({ phase, parts, config, models, cache }) {
  const found = [];
  if (phase === "loading") found.push(["warn", "Starting", "requests wait until the models are loaded"]);
  if (phase === "draining") found.push(["warn", "Shutting down", "new requests are refused"]);
  for (const [name, part] of Object.entries(parts)) if (part.state === "failed") found.push(["bad", name, part.detail]);
  if (config.restart) found.push(["warn", "main file", parts["main file"].detail]);
  for (const { id, breaker, upstream } of models) {
    if (breaker !== "closed") found.push(["bad", id, "failed several times in a row and is left alone for a while"]);
    else if (upstream?.well === false) found.push(["bad", id, "is not well, say the checks of its health"]);
  }
  if (cache.error?.threshold === null) {
    found.push(["warn", "semantic cache", "audits found too many wrong answers, so that none are served by meaning"]);
  }
  if (config.open) {
    found.push(["note", "Open", "no team file is there, so that everybody who reaches this server may ask"]);
  }
  return found.map(([level, name, what]) =>
    h("p", { class: `problem ${level}` }, h("b", {}, name), ` ${what}${what.endsWith(".") ? "" : "."}`),
  );
}

export function systemPanel({ config, parts, version, uptime_s }) {
  const rows = Object.entries(parts).map(([name, part]) => [
    h("span", { class: "name" }, h("i", { class: `dot ${LEVELS[part.state]}` }), name),
    part.state,
    part.detail,
  ]);
  return [
    h(
      "dl",
      { class: "facts" },
      fact("Revision", h("code", {}, config.revision), config.good ? "" : " holds still: the files cannot be used as they are"),
      fact("Teams", config.teams ? count(config.teams) : "none: open to everybody"),
      fact("Reloads", `${count(config.reloads)} taken over, ${count(config.refused)} refused`),
      fact("Server", `Headgate ${version}, up ${span(uptime_s)}`),
    ),
    table("Parts", [["Part", "head"], ["State", ""], ["Detail", "long muted"]], rows, "No part has reported yet."),
  ];
}

const fact = (name, ...told) => h("div", {}, h("dt", {}, name), h("dd", {}, ...told));
