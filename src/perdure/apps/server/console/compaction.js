// A compaction in the conversation: its summary, and the original messages that it removed.
import { get, post } from "./api.js";
import { count, wholeTime } from "./format.js";
import { html, useState } from "./html.js";
import { Markdown } from "./markdown.js";
import { Still } from "./message.js";
import { Fault, Waiting, attempt, needing, useLoaded } from "./parts.js";

/** A compaction, folded; what it removed is read when it opens. */
export function Compaction({ compaction, path }) {
  const [isOpen, setOpen] = useState(false);
  const { tokensBefore: before, tokensAfter: after } = compaction;
  const undo = () => attempt(() => post(`${path}/uncompact`, { compaction: compaction.id }), "What it hid is back");
  return html`<details class="compaction" onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary><strong>Compaction</strong> ${compaction.isUndone ? "undone" : "older messages left the context"}
      ${before !== null && after !== null && html`<span>${count(before)} → ${count(after)} tokens</span>`}
      <time>${wholeTime(compaction.at)}</time></summary>
    <div class="stack"><div class="row"><h3 class="grow">Summary in their place</h3>
      ${!compaction.isUndone && html`<button class="quiet" ...${needing()} onClick=${undo}>Undo compaction</button>`}</div>
      <${Markdown} text=${compaction.summary} />
      ${isOpen && html`<${Removed} id=${compaction.id} path=${path} />`}</div></details>`;
}

/** The original messages that the compaction `id` removed from the context. */
export function Removed({ id, path }) {
  const { data, error, reload } = useLoaded((signal) => get(`${path}/removed`, { compaction: id }, signal), [id, path]);
  if (error) return html`<${Fault} error=${error} retry=${reload} />`;
  if (!data) return html`<${Waiting} />`;
  const { items, pinned } = data;
  return html`<section class="stack" aria-label="Removed messages"><h3>${count(items.length)} ${items.length === 1 ? "message" : "messages"} removed from the context${
    pinned.length ? `, ${count(pinned.length)} pinned ones stay` : ""}</h3>
    <p class="muted small">The log keeps them.</p>
    <${Still} messages=${items} path=${path} empty="It removed no message." /></section>`;
}
