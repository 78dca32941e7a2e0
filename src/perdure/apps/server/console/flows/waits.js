// What a flow waits for: replies by the composer, everything else by a card with its choices.
import { post, put } from "../api.js";
import { oneLine, safe, wholeTime } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Question } from "../inbox.js";
import { attempt, needing } from "../parts.js";

const REPLIES = new Set(["prompt-human", "autonomous-abort", "consent-denied"]);

export const isReply = (asked) => REPLIES.has(asked.question.topic);

/** Questions of a flow, and those of the sessions of its roles. */
export const ofFlow = (waiting, flow) => waiting.filter((each) => each.flow === flow || each.session.startsWith(`${flow}__`));

/** The cards of `questions` that are not replied to in words. */
export function Waits({ flow, questions, path }) {
  const cards = questions.filter((each) => !isReply(each));
  if (!cards.length) return null;
  return html`<div class="waits stack" role="region" aria-label="Waits for you">${cards.map((asked) => {
    if (asked.question.topic === "role-configuration") {
      const wait = flow.waits.find((each) => each.question === asked.id);
      return wait && html`<${RoleChoice} key=${asked.id} path=${path} wait=${wait} text=${asked.question.text} />`;
    }
    return html`<${Question} key=${asked.id} asked=${asked} hasFocus=${false} />`;
  })}</div>`;
}

/** Chooses the model and the skills of a role before it begins. */
function RoleChoice({ path, wait, text }) {
  const skills = Object.entries(wait.skills);
  const [model, setModel] = useState("");
  const [chosen, setChosen] = useState([]);
  const [isSending, setSending] = useState(false);
  const toggle = (name) => setChosen((old) => (old.includes(name) ? old.filter((each) => each !== name) : [...old, name]));
  async function send(event) {
    event.preventDefault();
    setSending(true);
    const body = { model: model || null, skills: chosen.length ? chosen : null };
    if (!await attempt(() => put(`${path}/roles/${encodeURIComponent(wait.role)}`, body), "Configured")) setSending(false);
  }
  return html`<form class="question" onSubmit=${send} aria-label=${oneLine(text)}>
    <strong>${safe(text)}</strong>
    <div class="row">${wait.models.length > 0 && html`<label class="row small">Model
        <select value=${model} onChange=${(e) => setModel(e.target.value)}><option value="">as its agent says</option>${wait.models.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`}
      ${skills.map(([name, about]) => html`<label class="row small" title=${oneLine(about)}><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} /> ${oneLine(name)}</label>`)}</div>
    <div class="row"><button class="primary" disabled=${isSending} ...${needing()}>Begin</button></div></form>`;
}

/** Writes to the node or role that waits for a reply; stops the one that works. */
export function Composer({ path, questions, selected, running, done }) {
  const replies = questions.filter(isReply);
  const [wanted, setWanted] = useState(null);
  const asked = replies.find((each) => each.target === wanted) ?? replies.find((each) => selected.includes(each.target));
  const key = `draft:${path}:${asked?.target ?? ""}`;
  const [text, setText] = useState("");
  const [isSending, setSending] = useState(false);
  const area = useRef(null);
  useEffect(() => setText(sessionStorage.getItem(key) ?? ""), [key]);
  useEffect(() => setWanted(null), [selected.join("\n")]);
  const write = (value) => {
    setText(value);
    sessionStorage.setItem(key, value);
  };
  async function send(event) {
    event?.preventDefault();
    if (!text.trim() || isSending || !asked) return;
    setSending(true);
    const sent = await attempt(() => post(`${path}/reply`, { text, to: asked.target }));
    setSending(false);
    if (sent !== undefined) {
      write("");
      done();
    }
    area.current?.focus();
  }
  const stop = () => attempt(() => post(`${path}/stop`, { target: running }), "Stopping").then(done);
  const onKeyDown = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && send(event);
  if (!asked && !running && !replies.length) return null;
  return html`<div class="composer"><form onSubmit=${send}>
    ${asked && html`<p class="asked small"><strong>${oneLine(asked.target)}</strong> <time class="muted">${wholeTime(asked.at)}</time><span class="asks">${safe(asked.question.text)}</span></p>
      <textarea ref=${area} rows="2" aria-label=${`Reply to ${oneLine(asked.target)}`} placeholder=${`Reply to ${oneLine(asked.target)}…`} value=${text} onInput=${(e) => write(e.target.value)} onKeyDown=${onKeyDown} ...${needing()}></textarea>`}
    <div class="row">${asked && html`<button class="primary" disabled=${isSending || !text.trim()} ...${needing()}>Send</button>`}
      ${running && html`<button type="button" class="danger" ...${needing()} onClick=${stop}>Stop ${oneLine(running)}</button>`}
      ${replies.filter((each) => each !== asked).map((each) => html`<button type="button" class="quiet" onClick=${() => setWanted(each.target)}>${oneLine(each.target)} waits too</button>`)}</div>
  </form></div>`;
}
