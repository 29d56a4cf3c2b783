// The key stays in this tab: in sessionStorage, and in the Authorization header of what is asked.

import { storage } from "./storage.js";

const KEY = "headgate-admin-key";
const WAIT_MS = 10_000;
const kept = storage("sessionStorage");

export const signedIn = () => kept.getItem(KEY) !== null;
export const signIn = (key) => kept.setItem(KEY, key);
export const signOut = () => kept.removeItem(KEY);

/** What the server said instead of an answer. Status 0: it could not be reached. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The JSON of a path under /admin, or Refused. */
export async function ask(path) {
  const key = kept.getItem(KEY);
  const [reply, body] = await get(path, key === null ? {} : { Authorization: `Bearer ${sendable(key)}` });
  if (!reply.ok) throw new Refused(reply.status, body.error?.message ?? `The server answered ${reply.status}.`);
  return body;
}

/** The bytes of the key as the server reads them, in a string that a header takes: others end in an error of the browser. */
const sendable = (key) => String.fromCharCode(...new TextEncoder().encode(key));

/** Whether this server wants a key, as far as it tells those who have none. */
export async function wantsKey() {
  const [, { parts }] = await get("/ready", {});
  return parts?.teams?.state !== "off";
}

async function get(path, headers) {
  try {
    const reply = await fetch(path, { headers, credentials: "omit", signal: AbortSignal.timeout(WAIT_MS) });
    return [reply, await reply.json().catch(() => ({}))];
  } catch {
    throw new Refused(0, "The server cannot be reached.");
  }
}
