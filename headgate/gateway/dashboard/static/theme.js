// Light, dark, or as the system has it.

import { storage } from "./storage.js";

const KEY = "headgate-theme";
const NAMES = ["auto", "light", "dark"];

export function themeButton(button) {
  const show = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    button.setAttribute("aria-label", `Theme: ${name}. Press for the next of auto, light and dark.`);
  };
  const kept = storage("localStorage");
  let name = NAMES.includes(kept.getItem(KEY)) ? kept.getItem(KEY) : "auto";
  show(name);
  button.addEventListener("click", () => {
    name = NAMES[(NAMES.indexOf(name) + 1) % NAMES.length];
    kept.setItem(KEY, name);
    show(name);
  });
}
