// Lines over the last minutes. All charts share one moment: what the pointer is over in one, every one tells.
// With the focus on a chart the arrow keys move it.

import { h, s } from "./dom.js";
import { round } from "./format.js";

const HEIGHT = 96;
const TOP = 14;
const BOTTOM = 4;

/** The moment the pointer is over, as an index of the points; null: the present. */
export class Moment extends EventTarget {
  at = null;

  move(at) {
    if (at === this.at) return;
    this.at = at;
    this.dispatchEvent(new Event("move"));
  }

  /** So many points have left: the moment is the same, or none where it left too. */
  shift(gone) {
    if (this.at !== null && gone) this.move(this.at >= gone ? this.at - gone : null);
  }
}

export class Chart {
  /** @param series [{name, values(points), kind}] drawn in this order, the last one on top. */
  constructor({ title, series, format, moment, most = 0 }) {
    this.series = series;
    this.format = format;
    this.moment = moment;
    this.most = most;
    this.points = null;
    this.lines = series.map(({ kind }) => s("path", { class: `line ${kind}` }));
    this.area = s("path", { class: "area" });
    this.cursor = s("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.top = s("text", { class: "axis", x: 0, y: 10 });
    this.grid = s("line", { class: "grid", x1: 0, y1: TOP, y2: TOP });
    this.base = s("line", { class: "grid", x1: 0, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM });
    this.drawing = s(
      "svg",
      { class: "chart", height: HEIGHT, role: "img", "aria-label": `${title}, by moment`, tabindex: 0 },
      this.grid,
      this.base,
      this.area,
      ...this.lines,
      this.cursor,
      this.top,
    );
    this.legend = h("p", { class: "legend" });
    this.element = h("div", { class: "plot" }, this.drawing, this.legend);
    this.drawing.addEventListener("pointermove", (event) => this.#point(event));
    this.drawing.addEventListener("pointerleave", () => moment.move(null));
    this.drawing.addEventListener("keydown", (event) => this.#step(event));
    this.drawing.addEventListener("blur", () => moment.move(null));
    moment.addEventListener("move", () => this.#tell());
    new ResizeObserver(() => this.draw(this.points)).observe(this.element);
  }

  draw(points) {
    this.points = points;
    const width = this.element.clientWidth;
    if (!points || !width) return;
    this.drawing.setAttribute("width", width);
    this.width = width;
    this.values = this.series.map(({ values }) => values(points));
    const highest = Math.max(this.most, ...this.values.flat().filter((value) => value !== null));
    this.scale = nice(highest);
    this.lines.forEach((line, at) => line.setAttribute("d", this.#path(this.values[at])));
    this.area.setAttribute("d", this.#area(this.values.at(-1)));
    this.top.textContent = highest > 0 ? round(this.format(this.scale)) : "";
    for (const line of [this.grid, this.base]) line.setAttribute("x2", width);
    this.#tell();
  }

  #x(index) {
    const { size, length } = this.points;
    return (this.width * (size - length + index)) / Math.max(1, size - 1);
  }

  #y(value) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / this.scale);
  }

  #path(values) {
    let path = "";
    let drawing = false;
    values.forEach((value, index) => {
      if (value === null) {
        drawing = false;
        return;
      }
      // A point alone is a dot, which a line of no length with round ends is.
      const place = `${this.#x(index).toFixed(1)},${this.#y(value).toFixed(1)}`;
      path += drawing ? `L${place}` : `M${place}L${place}`;
      drawing = true;
    });
    return path;
  }

  #area(values) {
    const base = HEIGHT - BOTTOM;
    const runs = [];
    values.forEach((value, index) => {
      if (value === null) return;
      if (index === 0 || values[index - 1] === null) runs.push([]);
      runs.at(-1).push([this.#x(index).toFixed(1), this.#y(value).toFixed(1)]);
    });
    return runs
      .map((run) => `M${run[0][0]},${base}${run.map(([x, y]) => `L${x},${y}`).join("")}L${run.at(-1)[0]},${base}Z`)
      .join("");
  }

  #point(event) {
    if (!this.points?.length) return;
    const { size, length } = this.points;
    const share = (event.clientX - this.drawing.getBoundingClientRect().left) / this.width;
    const index = Math.round(share * (size - 1)) - (size - length);
    this.moment.move(Math.min(length - 1, Math.max(0, index)));
  }

  /** Arrows go from moment to moment, Escape back to the present. */
  #step(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -15, PageDown: 15 };
    if (event.key === "Escape") this.moment.move(null);
    if (!(event.key in steps) || !this.points?.length) return;
    event.preventDefault();
    const last = this.points.length - 1;
    this.moment.move(Math.min(last, Math.max(0, (this.moment.at ?? last) + steps[event.key])));
  }

  #tell() {
    if (!this.values) return;
    const at = this.moment.at !== null && this.moment.at < this.points.length ? this.moment.at : null;
    const index = at ?? this.points.length - 1;
    this.cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) {
      this.cursor.setAttribute("x1", this.#x(at));
      this.cursor.setAttribute("x2", this.#x(at));
    }
    const entries = this.series
      .map(({ name, kind }, line) => [name, kind, this.values[line][index]])
      .map(([name, kind, value]) =>
        h("span", {}, h("i", { class: kind }), `${name} `, h("b", {}, this.format(value ?? null))),
      )
      .reverse();
    this.legend.replaceChildren(...entries);
  }
}

/** The least round number that holds a value. */
function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
