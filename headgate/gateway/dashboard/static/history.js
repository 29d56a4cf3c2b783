// The points of the last minutes, as the server numbers them.

const KEPT = 450;
const SHOWN = [90, 225, KEPT];

export class History {
  /** How many points there is room for: few at first, so that what is there can be seen. */
  size = SHOWN[0];
  length = 0;
  columns = { at: [] };
  last = 0;
  /** Points that have left since the first one came. */
  gone = 0;

  /** Take the points that came since; all of them, where the server started anew. */
  add({ first, columns }) {
    const anew = first !== this.last + 1;
    const count = columns.at.length;
    const had = this.length;
    for (const [name, values] of Object.entries(columns)) {
      this.columns[name] = (anew ? values : [...(this.columns[name] ?? []), ...values]).slice(-KEPT);
    }
    this.length = this.columns.at.length;
    this.gone += anew ? had : had + count - this.length;
    this.size = SHOWN.find((size) => size >= this.length);
    this.last = first + count - 1;
  }
}
