// Everything that waits for a person: whole arguments, the change of a file, answers by key.
import { get, lacking, post } from "./api.js";
import { Handed } from "./flows/handed.js";
import { oneLine, pretty, safe, seqOf, wholeTime } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Empty, attempt, needing } from "./parts.js";

const DONE = { allow: "Allowed", always: "Allowed from now on", deny: "Refused" };

export function Inbox({ waiting }) {
  return html`<header class="bar"><h1>Inbox</h1><span class="muted small">${waiting.length ? `${waiting.length} waiting` : ""}</span></header>
    <div class="scroll"><div class="messages">
      ${waiting.length === 0 && html`<${Empty}>Nothing waits for you.<//>`}
      ${waiting.map((each, n) => html`<${Question} key=${each.id} asked=${each} hasFocus=${n === 0} isLinked />`)}
    </div></div>`;
}

/** The text of a question, without the arguments of its call, which are shown whole below it. */
function asks({ text, arguments: given }) {
  const at = given ? text.indexOf(` ${JSON.stringify(given).slice(0, 24)}`) : -1;
  return at > 0 ? text.slice(0, at) : text;
}

/** One question. With the focus in it, a number or the first letter of a choice answers. */
export function Question({ asked, hasFocus, isLinked }) {
  const { question } = asked;
  const [note, setNote] = useState("");
  const [isSending, setSending] = useState(false);
  const [box, setBox] = useState(null);
  useEffect(() => { if (hasFocus) box?.focus({ preventScroll: true }); }, [box, hasFocus]);

  async function answer(choice) {
    setSending(true);
    const body = { answer: choice, note: note.trim() || null };
    const done = await attempt(() => post(`${addressOf(asked)}/answer`, body), DONE[choice] ?? `Answered: ${choice}`);
    if (!done) setSending(false);
  }
  function onKeyDown(event) {
    if (event.target !== box || event.ctrlKey || event.metaKey || event.altKey || isSending || lacking("write")) return;
    const choice = question.choices[Number(event.key) - 1] ?? question.choices.find((each) => each[0] === event.key);
    if (choice) {
      event.preventDefault();
      event.stopPropagation();
      answer(choice);
    }
  }
  return html`<section class="question" ref=${setBox} tabindex="0" onKeyDown=${onKeyDown} aria-label=${oneLine(question.text)}>
    <div class="row"><strong>${safe(asks(question))}</strong>
      ${isLinked && html`<a class="small" href=${asked.flow ? `#/flows/${encodeURIComponent(asked.flow)}` : `#/sessions/${encodeURIComponent(asked.session)}`}>open the ${asked.flow ? "flow" : "session"}</a>`}
      <time class="muted small">${wholeTime(asked.at)}</time></div>
    ${question.preview && !question.arguments && html`<p class="mono">${safe(question.preview)}</p>`}
    <${Details} asked=${asked} />
    ${question.topic === "handoff-approval" && asked.flow && html`<${Handed} asked=${asked} />`}
    ${question.grant && html`<p class="small muted">“always” allows: <code>${safe(question.grant)}</code></p>`}
    <div class="row">
      ${question.choices.map((choice, n) => html`<button class=${n === 0 ? "primary" : ""} disabled=${isSending} ...${needing()} onClick=${() => answer(choice)}>
        ${choice} <kbd>${n + 1}</kbd></button>`)}
      <input class="grow" placeholder=${question.choices.length ? "note (optional)" : "your answer"} aria-label="Note" value=${note} onInput=${(e) => setNote(e.target.value)} />
      ${question.choices.length === 0 && html`<button class="primary" disabled=${isSending || !note.trim()} ...${needing()} onClick=${() => answer(note.trim())}>Send</button>`}
    </div>
  </section>`;
}

/** The change of a file, and all arguments: what is cut or masked in the inbox is read on request. */
function Details({ asked }) {
  const [whole, setWhole] = useState(null);
  const { diff, arguments: given } = whole ?? asked.question;
  const load = () => attempt(async () => setWhole((await get(addressOf(asked))).question));
  if (!diff && !given) return null;
  const values = given && html`<pre class="plain" tabindex="0" aria-label="Arguments">${pretty(given)}</pre>`;
  return html`${!whole && isShortened(asked.question) && html`<p class="row small"><span>Not all of it is shown here.</span><button onClick=${load}>Show in full</button></p>`}
    ${diff && html`<${Diff} text=${diff} />`}
    ${values && (diff ? html`<details class="tool"><summary><strong>Arguments</strong><span class="args truncate">${oneLine(Object.keys(given).join(", "))}</span></summary>${values}</details>` : values)}`;
}

const addressOf = (asked) => `inbox/${encodeURIComponent(asked.session)}/${seqOf(asked.id)}`;

/** Whether a value of the call is only its beginning, the diff is cut, or a secret is masked. */
function isShortened({ diff, arguments: given }) {
  if (!given) return false;
  const isCut = (value) => value !== null && typeof value === "object" && "blake2b_256" in value && "head" in value;
  return Object.values(given).some(isCut) || /\n\[the diff is cut here: \d+ lines in all\]$/.test(diff ?? "")
    || `${JSON.stringify(given)}${diff ?? ""}`.includes("[redacted]");
}

export function Diff({ text }) {
  const kind = (line) => (/^\+(?!\+\+)/.test(line) ? "added" : /^-(?!--)/.test(line) ? "removed" : "");
  return html`<pre class="diff" tabindex="0" aria-label="The change">${safe(text).split("\n").map((line) => html`<span class=${kind(line)}>${line || " "}</span>`)}</pre>`;
}
