// Who is looking, at which view, and how often the server is asked.

import { h } from "./dom.js";
import { span } from "./format.js";
import { History } from "./history.js";
import { Overview } from "./overview.js";
import { RequestView } from "./request.js";
import { RequestsView } from "./requests.js";
import { ask, Refused, signedIn, signIn, signOut, wantsKey } from "./session.js";
import { themeButton } from "./theme.js";

const EVERY_MS = 2000;
const main = document.querySelector("#main");
const state = document.querySelector("#state");
const leave = document.querySelector("#leave");
const views = document.querySelector("#views");

let view = null;
let timer = null;
let asked = 0;
let history = new History();

themeButton(document.querySelector("#theme"));
leave.addEventListener("click", () => {
  signOut();
  history = new History();
  open();
});
window.addEventListener("hashchange", () => {
  open();
  main.focus({ preventScroll: true });
});
// Whoever comes back with the key from elsewhere finds the form as he left it.
document.addEventListener("visibilitychange", () => document.hidden || asking() || look());
open();

/** Show the view that the address names. */
function open() {
  const [name, id] = location.hash.replace(/^#\/?/, "").split("/");
  if (name === "requests" && id) view = new RequestView(id);
  else if (name === "requests") view = new RequestsView();
  else view = new Overview(history);
  for (const link of views.children) {
    const here = link.hash.replace(/^#\/?/, "") === (name ?? "");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(h("p", { class: "empty" }, "Asking the server…"));
  main.dataset.view = name || "overview";
  window.scrollTo(0, 0);
  look();
}

const asking = () => main.querySelector(".sign-in") !== null;

/** Ask for what the view shows, and again in a while unless nobody looks. What was asked before is of no interest. */
async function look() {
  clearTimeout(timer);
  const mine = ++asked;
  try {
    if (!signedIn() && (await wantsKey())) return mine === asked && askForKey();
    const live = await ask(`/admin/live?after=${history.last}`);
    if (mine !== asked) return;
    history.add(live.history);
    await view.look(live);
    if (mine !== asked) return;
    if (main.firstChild !== view.element) main.replaceChildren(view.element);
    view.drawn?.();
    welcome(live);
  } catch (error) {
    if (mine !== asked) return;
    if (error.status === 401 || error.status === 403) return askForKey(error.message);
    trouble(error);
    if (!(error instanceof Refused)) throw error;
  } finally {
    if (mine === asked && !document.hidden) timer = setTimeout(look, EVERY_MS);
  }
}

function welcome(live) {
  main.classList.remove("stale");
  views.hidden = false;
  leave.hidden = !signedIn();
  const failed = Object.values(live.parts).some((part) => part.state === "failed");
  state.className = `state ${live.phase !== "ready" ? "warn" : failed ? "warn" : "good"}`;
  state.textContent = `${live.phase}, up ${span(live.uptime_s)}`;
  document.title = "Headgate";
}

/** What was seen last stays, and looks it. */
function trouble(error) {
  main.classList.add("stale");
  state.className = "state bad";
  state.textContent = "no answer";
  leave.hidden = !signedIn();
  document.title = "Headgate: no answer";
  if (main.firstChild !== view.element) {
    main.classList.remove("stale");
    main.replaceChildren(h("p", { class: "empty bad" }, `${error.message} It is asked again every two seconds.`));
  }
}

function askForKey(refused) {
  asked += 1;
  views.hidden = true;
  leave.hidden = true;
  state.className = "state";
  state.textContent = "";
  const field = h("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "why",
  });
  const form = h(
    "form",
    { class: "sign-in" },
    h("h1", {}, "Sign in"),
    h("label", { for: "key" }, "Admin key"),
    field,
    h("button", { type: "submit" }, "Sign in"),
    h("p", { id: "why", class: refused ? "bad" : "", role: refused ? "alert" : null }, refused ?? hint()),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    signIn(field.value.trim());
    open();
  });
  signOut();
  main.replaceChildren(form);
  field.focus();
}

function hint() {
  return (
    "A key with the role admin, such as “headgate keys create ops --team TEAM --role admin” makes. It is kept in this " +
    "tab until you close it."
  );
}
