// Calls of the API. A refusal is thrown as `Refused` with the code and the sentence of its problem.

const ROOT = import.meta.url.slice(0, import.meta.url.lastIndexOf("/console/") + 1);

export class Refused extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

const signedOut = new Set();

/** Calls `listener` when the server refuses the sign-in; returns the function that ends it. */
export function onSignedOut(listener) {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

/** The address of a path of the API, with `query` without its empty values. */
export function address(path, query = {}) {
  const url = new URL(`v1/${path}`, ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const each of [].concat(value)) url.searchParams.append(name, each);
  }
  return url;
}

/** Sends a request and returns its JSON. */
export async function call(method, path, { query, body, signal } = {}) {
  let response;
  try {
    response = await fetch(address(path, query), {
      method,
      signal,
      headers: {
        "X-Perdure": "1",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "offline", "The server does not answer. It is tried again.");
  }
  const text = await response.text();
  const found = text ? JSON.parse(text) : null;
  if (response.ok) return found;
  if (response.status === 401) for (const listener of signedOut) listener();
  throw new Refused(response.status, found?.code ?? "unknown", found?.detail ?? response.statusText);
}

const ROLES = ["read", "write", "admin"];
let role = "admin";

/** Reads the role of the caller's token. The server enforces the role; the views disable what it refuses. */
export async function loadRole() {
  ({ role } = await get("caller"));
}

/** Why the caller may not do what needs the role `needed`; undefined if it may. */
export const lacking = (needed) => (ROLES.indexOf(role) < ROLES.indexOf(needed)
  ? `This needs a token with the role ${needed}; yours has the role ${role}.` : undefined);

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body = {}) => call("POST", path, { body });
export const put = (path, body) => call("PUT", path, { body });
export const patch = (path, body) => call("PATCH", path, { body });
export const remove = (path, query) => call("DELETE", path, { query });

/**
 * Watches a stream of events after the seq or position `after`. A broken connection is made again
 * after the newest durable event, so none is missed and none comes twice.
 * `on` has the functions durable, live, snapshot, caughtUp and state("live" | "waiting").
 */
export function watch(path, after, on) {
  let last = after;
  let source = null;
  let timer = null;
  let pause = 500;
  let isOver = false;

  const parsed = (handler) => (event) => handler?.(JSON.parse(event.data), event);
  function connect() {
    source = new EventSource(address(path, { after: last }));
    source.onopen = () => {
      pause = 500;
      on.state?.("live");
    };
    source.addEventListener("durable", parsed((data, event) => {
      if (event.lastEventId !== "") last = Number(event.lastEventId);
      on.durable?.(data);
    }));
    source.addEventListener("live", parsed(on.live));
    source.addEventListener("snapshot", parsed(on.snapshot));
    source.addEventListener("caught-up", parsed(on.caughtUp));
    source.onerror = () => {
      on.state?.("waiting");
      source.close();
      if (isOver) return;
      timer = setTimeout(connect, pause);
      pause = Math.min(pause * 2, 10_000);
    };
  }
  connect();
  return () => {
    isOver = true;
    clearTimeout(timer);
    source?.close();
  };
}
