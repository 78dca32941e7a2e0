// The feed of one role: what it thought, said, did and handed over; each line links to its entry.
import { get } from "../api.js";
import { oneLine, safe, seqOf, sessionOf, shortTime, wholeTime } from "../format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { Markdown } from "../markdown.js";
import { Fault, Waiting } from "../parts.js";
import { useReader } from "./reader.js";

const PAGE = 300;
const HANDOFF = /```handoff\s*\n([\s\S]*?)(?:```|$)/;

/**
 * The items of the feed of `role`, read on when `version` changes; `live` is what it says now.
 * The owner of the ref `hear` calls it with each event: hear.current(kind, event).
 */
export function useFeed(flow, role, session, version, hear) {
  const [items, setItems] = useState(null);
  const [error, setError] = useState(null);
  const [live, setLive] = useState(null);
  const cursor = useRef(null);

  useEffect(() => {
    cursor.current = null;
    setItems(null);
    setLive(null);
  }, [flow, role]);
  useReader(async (isOver) => {
    if (!role) return;
    for (let hasMore = true; hasMore;) {
      const page = await get(`flows/${encodeURIComponent(flow)}/feeds/${encodeURIComponent(role)}`, { after: cursor.current, limit: PAGE });
      if (isOver()) return;
      cursor.current = page.cursor;
      hasMore = page.hasMore;
      setItems((old) => merged(old ?? [], page.items));
    }
    setError(null);
  }, setError, [flow, role], version);
  useEffect(() => {
    hear.current = (kind, event) => {
      if (event.sessionId !== session) return;
      if (kind === "live" && event.type !== "agent:tool_progress") setLive((old) => grown(old, event));
      else if (kind === "snapshot") setLive(joined(event));
      else if (/^agent:(model_finished|message|interrupted)$/.test(event.type)) setLive(null);
    };
    return () => { hear.current = null; };
  }, [session]);
  return { items, error, live };
}

const merged = (old, items) => {
  const at = new Map(old.map((each, n) => [each.id, n]));
  const found = [...old];
  for (const item of items) {
    if (at.has(item.id)) found[at.get(item.id)] = item;
    else found.push(item);
  }
  return found;
};

function grown(old, event) {
  const now = old?.of === event.of ? old : { of: event.of, text: "", reasoning: "" };
  const key = event.type === "agent:reasoning" ? "reasoning" : "text";
  return { ...now, [key]: now[key] + event.text };
}

function joined(event) {
  const parts = event.partial?.parts ?? [];
  const join = (type) => parts.filter((part) => part.type === type).map((part) => part.text).join("");
  return { of: event.of, text: join("text"), reasoning: join("thinking") };
}

export function Feed({ flow, role, target, items, error, live }) {
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const shown = useRef(null);
  useLayoutEffect(() => {
    const found = target && shown.current !== target && box.current?.querySelector(`[data-item="${CSS.escape(target)}"]`);
    if (found) {
      shown.current = target;
      isAtEnd.current = false;
      found.scrollIntoView({ block: "center" });
    } else if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [items, live, target]);
  useLayoutEffect(() => { isAtEnd.current = true; }, [role]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < 60;
  };
  if (error && !items) return html`<${Fault} error=${error} />`;
  if (!items) return html`<${Waiting} />`;
  return html`<div class="scroll feed" ref=${box} onScroll=${onScroll} tabindex="0" role="log" aria-label=${`Feed of ${oneLine(role)}`}>
    ${items.length === 0 && !live && html`<p class="empty">${oneLine(role)} has not begun.</p>`}
    ${items.map((item) => html`<${Item} key=${item.id} flow=${flow} role=${role} item=${item} isTarget=${item.id === target} />`)}
    ${live?.reasoning && html`<article class="item reasoning"><span class="what pulse">thinks</span><p class="said muted">${safe(live.reasoning)}</p></article>`}
    ${live?.text && html`<article class="item assistant" aria-busy="true"><span class="what pulse">says</span><div class="said"><${Said} text=${live.text} /></div></article>`}
  </div>`;
}

/** Type of an item -> its word. */
const WORDS = {
  assistant: "says", user: "you", event: "event", error: "stopped", handoff: "handoff", resume: "resumed", repair: "repair",
  reasoning: "thinks", tool: "tool …", "tool-success": "tool ✓", "tool-error": "tool ✗", activation: "begins",
};

/** The address of an entry: of a session in its conversation, else of the feed itself. */
const addressOf = (flow, role, item) => {
  const isOfSession = item.entryId && sessionOf(item.entryId) !== flow;
  return isOfSession ? `#/sessions/${encodeURIComponent(sessionOf(item.entryId))}/${seqOf(item.entryId)}`
    : `#/flows/${encodeURIComponent(flow)}/${encodeURIComponent(role)}/${encodeURIComponent(item.id)}`;
};

function Item({ flow, role, item, isTarget }) {
  return html`<article class=${`item ${item.type} ${isTarget ? "target" : ""}`} data-item=${item.id}>
    <span class=${`what ${item.type === "tool" ? "pulse" : ""}`}>${WORDS[item.type] ?? item.type}</span>
    <div class="said"><${Words} item=${item} /></div>
    <a class="at muted small" href=${addressOf(flow, role, item)} title=${wholeTime(item.at) || "Address of this entry"}>${item.at ? shortTime(item.at) : "#"}</a>
  </article>`;
}

function Words({ item }) {
  if (item.type === "assistant") return html`<${Said} text=${item.text} />`;
  if (item.type === "reasoning") {
    return html`<details><summary class="truncate">${item.isRedacted ? "The provider keeps this reasoning to itself." : oneLine(item.text).slice(0, 160)}</summary>
      <p class="muted">${safe(item.text)}</p></details>`;
  }
  if (item.type.startsWith("tool")) {
    const [name, ...rest] = item.text.split(" ");
    return html`<details><summary class="truncate mono"><strong>${oneLine(name)}</strong> ${oneLine(rest.join(" ")).slice(0, 200)}</summary><pre class="plain">${safe(item.text)}</pre></details>`;
  }
  return html`<p>${safe(item.text)}</p>`;
}

/** What a role says, with its signal at the end folded. */
function Said({ text }) {
  const signal = HANDOFF.exec(text);
  const words = signal ? text.replace(signal[0], "").trim() : text;
  return html`${words && html`<${Markdown} text=${words} />`}
    ${signal && html`<details><summary>signal</summary><pre class="plain">${safe(signal[1].trim())}</pre></details>`}`;
}
