// Numbers as people read them: few digits, thin units, a dash for what is not known.

export const NOTHING = "–";
const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const count = (value) => (known(value) ? COUNT.format(value) : NOTHING);

export const short = (value) => (!known(value) ? NOTHING : value < 10000 ? COUNT.format(value) : SHORT.format(value));

export function rate(value) {
  if (!known(value)) return NOTHING;
  return value === 0 ? "0" : value < 10 ? value.toFixed(value < 0.1 ? 2 : 1) : short(value);
}

/** [number, unit] of a time in seconds. */
export function timeParts(seconds) {
  if (!known(seconds)) return [NOTHING, ""];
  if (seconds < 0) return timeParts(-seconds).map((text, at) => (at ? text : `−${text}`));
  if (seconds === 0) return ["0", ""];
  if (seconds < 0.001) return [(seconds * 1e6).toFixed(0), "µs"];
  if (seconds < 1) return [(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0), "ms"];
  if (seconds < 100) return [seconds.toFixed(seconds < 10 ? 2 : 1), "s"];
  if (seconds < 6000) return [(seconds / 60).toFixed(1), "min"];
  return [(seconds / 3600).toFixed(1), "h"];
}

export const time = (seconds) => timeParts(seconds).join("\u00a0").trim();

export function percent(share, digits) {
  if (!known(share)) return NOTHING;
  const value = 100 * share;
  if (digits === undefined && value > 0 && value < 0.05) return "<0.1\u00a0%";
  return `${value.toFixed(digits ?? (value > 0 && value < 9.95 ? 1 : 0))}\u00a0%`;
}

export function usd(value) {
  if (!known(value)) return NOTHING;
  const size = Math.abs(value);
  if (size === 0) return "$0";
  if (size < 1e-6) return `${value < 0 ? "−" : ""}<$0.000001`;
  const digits = size >= 1 ? 2 : Math.max(2, Math.min(6, 1 - Math.floor(Math.log10(size))));
  return `${value < 0 ? "−" : ""}$${size.toFixed(digits)}`;
}

export function bytes(value) {
  if (!known(value)) return NOTHING;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const at = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  return `${(value / 1024 ** at).toFixed(at && value / 1024 ** at < 10 ? 1 : 0)}\u00a0${units[at]}`;
}

/** A number that is round, without the digits that say so. */
export const round = (text) => text.replace(/\.0+(?!\d)/, "");

/** A time of today by the browser's clock and zone; that of another day has its date before it. */
export function clock(unix) {
  const at = new Date(unix * 1e3);
  const time = at.toLocaleTimeString("en-GB");
  if (at.toDateString() === new Date().toDateString()) return time;
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${time}`;
}

export function span(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}
