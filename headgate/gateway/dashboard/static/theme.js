// Light, dark, or as the system has it.

const KEY = "headgate-theme";
const NAMES = ["auto", "light", "dark"];

export function themeButton(button) {
  const show = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = `Theme: ${name}`;
    button.setAttribute("aria-label", `Theme: ${name}. Press for the next of auto, light and dark.`);
  };
  let name = NAMES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto";
  show(name);
  button.addEventListener("click", () => {
    name = NAMES[(NAMES.indexOf(name) + 1) % NAMES.length];
    localStorage.setItem(KEY, name);
    show(name);
  });
}
