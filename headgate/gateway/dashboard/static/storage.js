// What the browser keeps of a page. One that is told to keep nothing raises, has none, or takes nothing: then it is kept
// while the page is open.

/** `localStorage` or `sessionStorage`, or what does as they do. */
export function storage(name) {
  try {
    const kept = window[name];
    kept.setItem(name, "");
    kept.removeItem(name);
    return kept;
  } catch {
    const held = new Map();
    return {
      getItem: (key) => held.get(key) ?? null,
      setItem: (key, value) => held.set(key, value),
      removeItem: (key) => held.delete(key),
    };
  }
}
