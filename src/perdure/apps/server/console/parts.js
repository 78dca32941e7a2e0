// Small parts that every view uses: waiting, empty and fault; loading of data.
import { lacking } from "./api.js";
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

export const Waiting = ({ what = "Loading…" }) => html`<p class="waiting" role="status">${what}</p>`;
export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

/** What a person can do about a refusal whose sentence is for programs. */
const ADVICE = {
  session_not_found: "This session does not exist, or your token does not allow it.",
};

export function Fault({ error, retry }) {
  return html`<div class="fault" role="alert"><span>${ADVICE[error.code] ?? error.message}</span>
    ${retry && html`<button onClick=${retry}>Try again</button>`}</div>`;
}

/** The attributes that disable a control and say why, if the caller lacks the role `needed`. */
export function needing(needed = "write") {
  const why = lacking(needed);
  return why ? { disabled: true, title: why } : {};
}

/** Loads with `load(signal)`, again when `keys` change; returns {data, error, reload}. */
export function useLoaded(load, keys) {
  const [found, setFound] = useState({ data: null, error: null, isLoading: true });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const control = new AbortController();
    setFound((old) => ({ ...old, isLoading: true }));
    latest.current(control.signal).then(
      (data) => control.signal.aborted || setFound({ data, error: null, isLoading: false }),
      (error) => control.signal.aborted || setFound((old) => ({ data: old.data, error, isLoading: false })),
    );
    return () => control.abort();
  }, [...keys, round]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  return { ...found, reload };
}

/** A function that begins a read; it returns `isLate`, which is true if a later read was answered first. */
export function useReads() {
  const reads = useRef({ begun: 0, shown: 0 });
  return useCallback(() => {
    reads.current.begun += 1;
    const read = reads.current.begun;
    return () => {
      if (read < reads.current.shown) return true;
      reads.current.shown = read;
      return false;
    };
  }, []);
}

/** `value` as it was `ms` ago, if it did not change since. */
export function useSettled(value, ms) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

/** The ref of a dialog that opens with its view; `close` is called when it closes. */
export function useModal(close) {
  const box = useRef(null);
  useLayoutEffect(() => {  // at once: the next key belongs to the dialog
    box.current.showModal();
    const ended = () => close();
    box.current.addEventListener("close", ended);
    return () => box.current?.removeEventListener("close", ended);
  }, []);
  return box;
}

export const State = ({ state }) => html`<span class=${`state ${state}`}>${state}</span>`;

let showToast = () => {};
export const toast = (text) => showToast(text);

export function Toast() {
  const [text, setText] = useState("");
  useEffect(() => {
    let timer = null;
    showToast = (next) => {
      setText(next);
      clearTimeout(timer);
      timer = setTimeout(() => setText(""), 6_000);
    };
    return () => clearTimeout(timer);
  }, []);
  return html`<div role="status" aria-live="polite">${text && html`<div class="toast">${text}</div>`}</div>`;
}

/** Runs `work`; a refusal is told in a toast. Returns its result, or undefined. */
export async function attempt(work, done) {
  try {
    const result = await work();
    if (done) toast(done);
    return result;
  } catch (error) {
    toast(error.message);
    return undefined;
  }
}
