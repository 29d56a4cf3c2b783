// The points of the last minutes, as the server numbers them.

export class History {
  size = 450;
  length = 0;
  columns = { at: [] };
  last = 0;

  /** Take the points that came since; all of them, where the server started anew. */
  add({ first, columns }) {
    const anew = first !== this.last + 1;
    const count = columns.at.length;
    for (const [name, values] of Object.entries(columns)) {
      this.columns[name] = (anew ? values : [...(this.columns[name] ?? []), ...values]).slice(-this.size);
    }
    this.length = this.columns.at.length;
    this.last = first + count - 1;
  }
}
