// One message: text, folded reasoning, tool calls with their results, images.
import { address, put, remove } from "./api.js";
import { between, duration, oneLine, pretty, safe, seqOf, shortTime, wholeTime } from "./format.js";
import { html } from "./html.js";
import { Code, Markdown } from "./markdown.js";
import { attempt, needing, toast } from "./parts.js";

const WHO = { user: "Person", assistant: "Agent", tool: "Tool", system: "System", context: "Recalled" };

export function Message({ message, results, path, isLive, isTarget, state, waiting, toSibling, fork, branch }) {
  const isOnlyResults = message.parts.every((part) => part.type === "tool_result");
  if (message.role === "tool" && isOnlyResults && !isTarget && message.parts.every((part) => part.name || part.call_id)) return null;
  const seq = seqOf(message.id);
  const isStill = !branch;
  return html`<article class=${`message ${message.role} ${isTarget ? "target" : ""}`} data-seq=${isStill ? undefined : seq} aria-busy=${isLive ? "true" : undefined}>
    <header>
      <span class="who">${oneLine(message.author) || (WHO[message.role] ?? message.role)}</span>
      ${message.model && html`<span class="mono">${oneLine(message.model)}</span>`}
      ${message.at && html`<a href=${`#/sessions/${path.split("/")[1]}/${seq}`} title=${wholeTime(message.saidAt ?? message.at)}>${shortTime(message.saidAt ?? message.at)}</a>`}
      ${message.label && html`<span class="label">${oneLine(message.label)}</span>`}
      ${message.isPinned && html`<span class="label" title="Stays in the context">pinned</span>`}
      ${isLive && html`<span class="pulse">writing…</span>`}
      ${!isStill && message.siblings.length > 0 && html`<${Switch} message=${message} toSibling=${toSibling} />`}
      ${!isStill && html`<${Actions} message=${message} path=${path} fork=${fork} branch=${branch} />`}
    </header>
    ${message.parts.map((part, n) => html`<${Part} key=${n} part=${part} message=${message} results=${results} path=${path} isLive=${isLive} state=${state} waiting=${waiting} />`)}
    ${message.error && html`<p class="fault">${safe(typeof message.error === "string" ? message.error : JSON.stringify(message.error))}</p>`}
  </article>`;
}

function Switch({ message, toSibling }) {
  const all = [message.id, ...message.siblings].sort((a, b) => seqOf(a) - seqOf(b));
  const at = all.indexOf(message.id);
  const to = (step) => () => toSibling(all[at + step]);
  return html`<span class="row" role="group" aria-label="Branches from here">
    <button class="quiet" disabled=${at === 0} ...${needing()} onClick=${to(-1)} aria-label="The branch before">‹</button>
    <span>${at + 1} / ${all.length}</span>
    <button class="quiet" disabled=${at === all.length - 1} ...${needing()} onClick=${to(1)} aria-label="The branch after">›</button></span>`;
}

function Actions({ message, path, fork, branch }) {
  const seq = seqOf(message.id);
  const label = () => {
    const text = prompt("Label (empty removes it)", message.label ?? "");
    if (text !== null) attempt(() => put(`${path}/labels/${seq}`, { text: text.trim() || null }));
  };
  const pin = () => attempt(() => (message.isPinned ? remove(`${path}/pins/${seq}`) : put(`${path}/pins/${seq}`, undefined)));
  const copy = () => navigator.clipboard?.writeText(message.text ?? "").then(() => toast("Copied"));
  const close = (event) => { event.currentTarget.closest("details").open = false; };
  const left = (event) => {
    if (!event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
  };
  return html`<details class="menu" onFocusOut=${left}><summary aria-label="Actions">⋯</summary><div onClick=${close}>
    <button class="quiet" onClick=${copy}>Copy</button><button class="quiet" ...${needing()} onClick=${label}>Label</button>
    <button class="quiet" ...${needing()} onClick=${pin}>${message.isPinned ? "Unpin" : "Pin"}</button>
    <button class="quiet" title="Continue this conversation from here" ...${needing()} onClick=${() => branch(message.id)}>Branch</button>
    <button class="quiet" title="A new session from here" ...${needing()} onClick=${() => fork(message.id)}>Fork</button></div></details>`;
}

function Part({ part, message, results, path, isLive, state, waiting }) {
  switch (part.type) {
    case "text":
      if (!part.text) return null;
      return message.role === "assistant" ? html`<${Markdown} text=${part.text} />` : html`<div class="prose"><p>${safe(part.text)}</p></div>`;
    case "thinking":
      return html`<details open=${isLive && !message.parts.some((each) => each.type === "text" && each.text)}><summary>Reasoning</summary>
        <div class="prose muted"><p>${part.is_redacted ? "The provider keeps this reasoning to itself." : safe(part.text)}</p></div></details>`;
    case "tool_call":
      return html`<${ToolCall} call=${part} message=${message} result=${results.get(part.id)} session=${state} isWaiting=${waiting?.has(part.id)} />`;
    case "tool_result":
      return html`<${Code} text=${safe(part.text)} language=${part.is_error ? "error" : (part.name ?? "result")} />`;
    case "media":
      return html`<${Media} part=${part} message=${message} path=${path} />`;
    default:
      return html`<pre class="plain">${pretty(part)}</pre>`;
  }
}

/** The outcomes of tool calls by message and call, from messages of one branch. */
export function resultsOf(messages) {
  const results = new Map();
  for (const message of messages) {
    for (const part of message.parts) if (part.type === "tool_result") results.set(part.call_id, { part, at: message.at });
  }
  return results;
}

/** Messages to read only, with the results of their calls; `empty` is said if there are none. */
export function Still({ messages, path, empty }) {
  const results = resultsOf(messages);
  const calls = new Set(messages.flatMap((each) => each.parts.filter((part) => part.type === "tool_call").map((part) => part.id)));
  const isAlone = (message) => message.parts.some((part) => part.type === "tool_result" && !calls.has(part.call_id));
  if (!messages.length) return html`<p class="muted small">${empty}</p>`;
  return messages.map((each) => html`<${Message} key=${each.id} message=${each} results=${results} path=${path} isTarget=${isAlone(each)} />`);
}

/** A state of a call in the log -> its word and its look. */
const CALLS = {
  ok: ["done", ""], error: ["error", "error"], refused: ["denied", "error"], timeout: ["timed out", "error"],
  aborted: ["stopped", "error"], unknown: ["outcome unknown", "unknown"], running: ["running", "running pulse"],
  waiting: ["waits for you", "waiting"], intent: ["intent recorded", "waiting"], none: ["no outcome", ""],
};
const OPEN = new Set(["running", "waiting", "interrupted"]);

/** The state of a call: what the log says of it, else what its result and the `session` say. */
function stateOf(known, result, session, isWaiting) {
  if (known === "running" && session !== "running" && session !== "waiting") return "unknown";
  if (known) return known;
  if (result) return result.part.is_error ? "error" : "ok";
  if (isWaiting) return "waiting";
  return OPEN.has(session) ? "intent" : "none";
}

function ToolCall({ call, message, result, session, isWaiting }) {
  const [word, look] = CALLS[stateOf(message.calls?.[call.id], result, session, isWaiting)];
  return html`<details class="tool">
    <summary><strong class="mono">${oneLine(call.name)}</strong><span class="args truncate mono">${oneLine(JSON.stringify(call.args))}</span>
      ${result && html`<span class="muted small">${duration(between(message.at, result.at))}</span>`}
      <span class=${`state ${look}`}>${word}</span></summary>
    <div class="stack"><${Code} text=${pretty(call.args)} language="arguments" />
      ${result && html`<${Code} text=${safe(result.part.text)} language=${result.part.is_error ? "error" : "result"} />`}</div></details>`;
}

function Media({ part, message, path }) {
  const digest = part.handle.replace(/^media:\/\//, "");
  const href = address(`${path}/contents/${digest}`, { entry: message.id }).href;
  if (!/^image\/(png|jpeg|gif|webp)$/.test(part.mime_type)) {
    return html`<a href=${href} download>${oneLine(part.name) || part.mime_type}</a>`;
  }
  return html`<img class="media" loading="lazy" src=${href} alt=${oneLine(part.name) || "image in the conversation"} />`;
}
