// The turns of a session as bars: model calls and tools with tokens, cost, retries and outcome.
import { get } from "./api.js";
import { between, count, duration, money, oneLine, pretty, safe, shortTime } from "./format.js";
import { html, useMemo, useState } from "./html.js";
import { Empty, Fault, Waiting, attempt, useLoaded } from "./parts.js";

const PAGE = 20;

/** The newest turns of a session, oldest first; `more` reads earlier ones while `hasEarlier`. */
export function useTurns(path, version) {
  const [known, setKnown] = useState(new Map());
  const [earlier, setEarlier] = useState(undefined);
  const add = (page) => setKnown((old) => new Map([...old, ...page.items.map((turn) => [turn.seq, turn])]));
  const { data, error, reload } = useLoaded(async (signal) => {
    const page = await get(`${path}/turns`, { last: PAGE }, signal);
    add(page);
    setEarlier((old) => (old === undefined ? page.next : old));
    return page;
  }, [path, version]);
  const more = () => attempt(async () => {
    const page = await get(`${path}/turns`, { last: PAGE, before: earlier });
    add(page);
    setEarlier(page.next);
  });
  const turns = useMemo(() => [...known.values()].sort((a, b) => a.seq - b.seq), [known]);
  return { turns, isLoaded: data !== null, hasEarlier: Boolean(earlier), more, error, reload };
}

export function Timeline({ path, version }) {
  const { turns, isLoaded, hasEarlier, more, error, reload } = useTurns(path, version);
  if (error && !isLoaded) return html`<${Fault} error=${error} retry=${reload} />`;
  if (!isLoaded) return html`<${Waiting} />`;
  if (!turns.length) return html`<${Empty}>No turn ran here.<//>`;
  return html`<div class="pad stack">${[...turns].reverse().map((turn) => html`<${Turn} key=${turn.seq} turn=${turn} path=${path} />`)}
    ${hasEarlier && html`<button class="quiet" onClick=${more}>Earlier turns</button>`}</div>`;
}

function Turn({ turn, path }) {
  const end = turn.finishedAt ?? new Date().toISOString();
  const whole = Math.max(between(turn.startedAt, end), 1);
  const cost = turn.calls.reduce((sum, call) => sum + (call.costMicrocents ?? 0), 0);
  const hasPrice = turn.calls.some((call) => call.costMicrocents !== null);
  return html`<section class="card stack"><div class="row"><h2>Turn ${turn.number}</h2><span class=${`state ${turn.status}`}>${turn.status === "stop" ? "done" : turn.status}</span>
      <span class="muted small">${shortTime(turn.startedAt)} · ${duration(whole)}${hasPrice ? ` · ${money(cost)}` : ""}</span></div>
    ${turn.error && html`<p class="fault">${safe(turn.error)}</p>`}
    <div class="bars">${turn.calls.map((call) => html`<${Bar} key=${call.seq} call=${call} path=${path} start=${turn.startedAt} whole=${whole} end=${end} />`)}</div></section>`;
}

function Bar({ call, path, start, whole, end }) {
  const from = (100 * between(start, call.startedAt)) / whole;
  const took = between(call.startedAt, call.finishedAt ?? end);
  const width = Math.max((100 * took) / whole, 0.8);
  const tokens = call.tokens ? `${count(call.tokens.input + call.tokens.cacheRead + call.tokens.cacheWrite)} in, ${count(call.tokens.output)} out` : "";
  const about = [call.status, tokens, call.attempt > 1 ? `attempt ${call.attempt}` : "", call.error ? safe(call.error) : ""].filter(Boolean).join(" · ");
  return html`<details><summary class="bar-row" title=${about}>
      <span class="truncate mono">${oneLine(call.name)}</span>
      <span class="track"><svg viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true"><rect class=${`fill ${call.type} ${call.status}`} x=${Math.min(from, 99)} width=${Math.min(width, 100 - Math.min(from, 99))} height="12" rx="1" /></svg></span>
      <span>${duration(took)}</span></summary>
    <p class="small muted">${about}${call.costMicrocents === null ? "" : ` · ${money(call.costMicrocents)}`}${call.type === "model" && html` · <a href=${`#/${path}?side=context&call=${call.seq}`}>what it was sent</a>`}</p>${call.input && html`<pre class="plain">${pretty(call.input)}</pre>`}</details>`;
}
