// Numbers, times and outside text for people.

const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const YEAR = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const NUMBER = new Intl.NumberFormat();

/** A time as short as it can be told apart today. */
export function shortTime(text, now = new Date()) {
  const at = new Date(text);
  if (at.toDateString() === now.toDateString()) return CLOCK.format(at);
  return (at.getFullYear() === now.getFullYear() ? DAY : YEAR).format(at);
}

export const wholeTime = (text) => (text ? WHOLE.format(new Date(text)) : "");
export const count = (number) => NUMBER.format(number ?? 0);

export function duration(ms) {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1_000)} s`;
}

export const between = (from, to) => new Date(to) - new Date(from);

/** Microcents (1e-8 dollars) as dollars. */
export function money(microcents) {
  if (microcents === null || microcents === undefined) return "no price";
  const dollars = microcents / 1e8;
  return dollars !== 0 && dollars < 0.01 ? `$${dollars.toFixed(4)}` : `$${dollars.toFixed(2)}`;
}

export function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (size >= 1_000 && unit < units.length - 1) {
    size /= 1_000;
    unit += 1;
  }
  return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

// Control characters and marks that change the direction of text could hide what it says.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Outside text with every hidden character made visible. */
export function safe(text) {
  return String(text ?? "").replace(HIDDEN, (c) =>
    `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

export const flat = (text) => safe(String(text ?? "").replace(/\s+/g, " "));
export const oneLine = (text) => flat(text).trim();
export const pretty = (value) => safe(JSON.stringify(value, null, 2));
export const seqOf = (entryId) => Number(entryId.slice(entryId.lastIndexOf("/") + 1));
export const sessionOf = (entryId) => entryId.slice(0, entryId.lastIndexOf("/"));
