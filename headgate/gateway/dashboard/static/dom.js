// Elements without markup: text stays text, whatever a client called its model.

import { percent } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export const s = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** Have an element hold these children, changing only what is different: focus, selection and scrolling stay. */
export function refill(element, children) {
  const old = [...element.childNodes];
  children.forEach((child, at) => {
    if (at >= old.length) element.append(child);
    else if (!morph(old[at], child)) old[at].replaceWith(child);
  });
  for (const left of old.slice(children.length)) left.remove();
}

/** Make a node like another; false where it is of another kind. */
function morph(node, like) {
  if (node.nodeType !== like.nodeType || node.nodeName !== like.nodeName) return false;
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== like.data) node.data = like.data;
    return true;
  }
  for (const { name } of [...node.attributes]) if (!like.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of like.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  refill(node, [...like.childNodes]);
  return true;
}

/** A bar whose filled part is a share of it, 0 to 1. A mark may stand at another share. */
export function meter(share, { label, level = "", mark } = {}) {
  const at = (part) => `${(100 * Math.min(1, Math.max(0, part))).toFixed(2)}%`;
  return s(
    "svg",
    { class: `meter ${level}`, role: "img", "aria-label": label, width: "100%", height: 8 },
    s("rect", { class: "groove", width: "100%", height: 8, rx: 2 }),
    s("rect", { class: "level", width: at(share), height: 8, rx: 2 }),
    mark === undefined ? null : s("line", { class: "mark", x1: at(mark), x2: at(mark), y1: 0, y2: 8 }),
  );
}

/** One bar of several parts, given as [name, kind, count] of so many in all. */
export function shares(parts, all, height) {
  let at = 0;
  const told = parts.map(([name, , of]) => `${name} ${percent(of / all)}`);
  const bars = parts.map(([, kind, of], part) => {
    const bar = s("rect", { class: `share ${kind}`, x: `${at}%`, width: `${(100 * of) / all}%`, height });
    bar.append(s("title", {}, told[part]));
    at += (100 * of) / all;
    return bar;
  });
  return s("svg", { class: "shares", width: "100%", height, role: "img", "aria-label": told.join(", ") }, ...bars);
}

/** A table whose columns are [title, class] and whose cells are given by row; without rows it says why. */
export function table(caption, columns, rows, nothing) {
  if (!rows.length) return h("p", { class: "empty" }, nothing);
  return h(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h(
        "tbody",
        {},
        rows.map((cells) =>
          h(
            "tr",
            {},
            cells.map((cell, at) => h("td", { class: columns[at][1], "data-title": columns[at][0] }, cell)),
          ),
        ),
      ),
    ),
  );
}
