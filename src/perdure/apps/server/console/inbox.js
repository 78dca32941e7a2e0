// Everything that waits for a person: whole arguments, the change of a file, answers by key.
import { post } from "./api.js";
import { Handed } from "./flows/handed.js";
import { oneLine, pretty, safe, wholeTime } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Empty, attempt } from "./parts.js";

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
    const [session, seq] = [asked.session, asked.id.split("/").at(-1)];
    const done = await attempt(
      () => post(`inbox/${encodeURIComponent(session)}/${seq}/answer`, body), DONE[choice] ?? `Answered: ${choice}`);
    if (!done) setSending(false);
  }
  function onKeyDown(event) {
    if (event.target !== box || event.ctrlKey || event.metaKey || event.altKey || isSending) return;
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
    ${question.diff ? html`<${Diff} text=${question.diff} />`
      : question.arguments && html`<pre class="plain" tabindex="0">${pretty(question.arguments)}</pre>`}
    ${question.topic === "handoff-approval" && asked.flow && html`<${Handed} asked=${asked} />`}
    ${question.grant && html`<p class="small muted">“always” allows: <code>${safe(question.grant)}</code></p>`}
    <div class="row">
      ${question.choices.map((choice, n) => html`<button class=${n === 0 ? "primary" : ""} disabled=${isSending} onClick=${() => answer(choice)}>
        ${choice} <kbd>${n + 1}</kbd></button>`)}
      <input class="grow" placeholder=${question.choices.length ? "note (optional)" : "your answer"} aria-label="Note" value=${note} onInput=${(e) => setNote(e.target.value)} />
      ${question.choices.length === 0 && html`<button class="primary" disabled=${isSending || !note.trim()} onClick=${() => answer(note.trim())}>Send</button>`}
    </div>
  </section>`;
}

export function Diff({ text }) {
  const kind = (line) => (/^\+(?!\+\+)/.test(line) ? "added" : /^-(?!--)/.test(line) ? "removed" : "");
  return html`<pre class="diff" tabindex="0" aria-label="The change">${safe(text).split("\n").map((line) => html`<span class=${kind(line)}>${line || " "}</span>`)}</pre>`;
}
