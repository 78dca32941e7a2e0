// Memory: facts with where they come from, episodes, and a recall that explains its hits.
import { get, patch, post, remove } from "./api.js";
import { count, oneLine, safe, seqOf, sessionOf, shortTime, wholeTime } from "./format.js";
import { html, useState } from "./html.js";
import { Empty, Fault, Waiting, attempt, needing, useLoaded } from "./parts.js";

const entryLink = (id) => `#/sessions/${encodeURIComponent(sessionOf(id))}/${seqOf(id)}`;

const TABS = ["recall", "facts", "episodes"];

export function Memory({ tab: wanted, question }) {
  const tab = TABS.includes(wanted) ? wanted : "recall";
  const setTab = (name) => { location.hash = `/memory?tab=${name}`; };
  const [typed, setTyped] = useState(""); // kept when the view is drawn again meanwhile
  const [subject, setSubject] = useState("");
  return html`<header class="bar"><h1>Memory</h1>
      <label class="row small">Person <input size="12" list="persons" placeholder=${tab === "recall" ? "no one" : "everyone"} value=${typed} onInput=${(e) => setTyped(e.target.value)} onChange=${(e) => setSubject(e.target.value.trim())} /></label>
      <${Persons} /></header>
    <div class="tabs" role="tablist">${TABS.map((name) => html`<button class="quiet" role="tab"
      aria-selected=${tab === name} onClick=${() => setTab(name)}>${name[0].toUpperCase() + name.slice(1)}</button>`)}</div>
    <div class="scroll pad">${tab === "recall" ? html`<${Recall} subject=${subject} question=${question} />`
      : tab === "facts" ? html`<${Facts} subject=${subject} />` : html`<${Episodes} subject=${subject} />`}</div>`;
}

/** The persons of sessions, to choose from. */
function Persons() {
  const { data } = useLoaded((signal) => get("session-values", {}, signal), []);
  return html`<datalist id="persons">${(data?.subjects ?? []).map((each) => html`<option value=${each} />`)}</datalist>`;
}

function Recall({ subject, question }) {
  const [text, setText] = useState(question);
  const ask = (asked) => { location.hash = `/memory?tab=recall&question=${encodeURIComponent(asked)}`; };
  const { data, error } = useLoaded(
    async (signal) => (question ? get("memory/recall", { question, subject, limit: 20 }, signal) : null), [question, subject]);
  return html`<div class="stack">
    <form class="row" onSubmit=${(e) => { e.preventDefault(); ask(text.trim()); }}>
      <input class="grow" data-key="/" placeholder="When did we choose the hotel?" aria-label="A question" value=${text} onInput=${(e) => setText(e.target.value)} />
      <button class="primary">Recall</button></form>
    ${error && html`<${Fault} error=${error} />`}
    ${!question && html`<${Empty}>Ask as a person would. Each hit says why it was found.<//>`}
    ${data && data.items.length === 0 && html`<${Empty}>Nothing is remembered about that.<//>`}
    ${data?.items.map((hit) => html`<article class="card stack">
      <p class="prose">${safe(hit.text)}</p>
      <p class="row small muted"><${Origin} hit=${hit} />
        <span>score ${hit.score.toFixed(2)}</span><${Why} why=${hit.why} /></p></article>`)}
  </div>`;
}

function Origin({ hit }) {
  const entry = hit.kind === "fact" ? hit.sources[0] : hit.entryId;
  const name = `${oneLine(hit.author ?? hit.role)}, ${wholeTime(hit.at)}`;
  return entry ? html`<a href=${entryLink(entry)}>${name}</a>` : html`<span>${name}</span>`;
}

function Why({ why }) {
  const isNamed = why.terms?.length || why.neighbours?.length || why.speaker || why.date || why.time || why.vector != null;
  if (!isNamed) return html`<span>its session is about the question</span>`;
  return html`${why.terms?.length > 0 && html`<span>words: ${why.terms.map((term) => html`<mark>${safe(term)}</mark> `)}</span>`}
    ${why.neighbours?.length > 0 && html`<span>said around it: ${safe(why.neighbours.join(", "))}</span>`}
    ${why.speaker && html`<span>the named person said it</span>`}
    ${why.date > 0 && html`<span>near the date (${why.date.toFixed(2)})</span>`}
    ${why.time && html`<span>it names a time</span>`}
    ${why.vector != null && html`<span>meaning ${why.vector.toFixed(2)}</span>`}`;
}

function Facts({ subject }) {
  const { data, error, reload } = useLoaded((signal) => get("memory/facts", { subject, past: true }, signal), [subject]);
  const [text, setText] = useState("");
  async function add(event) {
    event.preventDefault();
    if (await attempt(() => post("memory/facts", { text, subject: subject || null }), "Remembered")) {
      setText("");
      reload();
    }
  }
  async function change(fact) {
    const better = prompt("The corrected text", fact.text);
    if (better && better !== fact.text) await attempt(() => patch(`memory/facts/${fact.id}`, { text: better }), "Corrected").then(reload);
  }
  async function forget(fact) {
    if (confirm("Forget this fact? Its text is erased. This cannot be undone; backups and exports keep it.")) await attempt(() => remove(`memory/facts/${fact.id}`), "Forgotten").then(reload);
  }
  return html`<div class="stack">
    <form class="row" onSubmit=${add}><input class="grow" placeholder="Remember a fact" aria-label="Remember a fact" value=${text} onInput=${(e) => setText(e.target.value)} required />
      <button class="primary" ...${needing()}>Remember</button></form>
    ${error && html`<${Fault} error=${error} retry=${reload} />`}
    ${!data && !error && html`<${Waiting} />`}
    ${data?.items.length === 0 && html`<${Empty}>${subject ? `No facts about ${subject}.` : "No facts yet."}<//>`}
    ${data?.items.map((fact) => html`<article class="card stack"><p>${safe(fact.text)}</p>
      <p class="row small muted">${fact.subject && html`<span>about ${oneLine(fact.subject)}</span>`}<span>said by ${fact.saidBy}</span><time>${wholeTime(fact.at)}</time>
        ${fact.validTo && html`<span>until ${wholeTime(fact.validTo)}</span>`}
        ${fact.sources.map((id, n) => html`<a href=${entryLink(id)}>source ${n + 1}</a>`)}
        <button class="quiet" ...${needing()} onClick=${() => change(fact)}>Correct</button><button class="quiet" ...${needing()} onClick=${() => forget(fact)}>Forget</button></p>
      ${fact.history.length > 0 && html`<details><summary>${count(fact.history.length)} earlier</summary><ul>${fact.history.map((old) => html`<li>${safe(old)}</li>`)}</ul></details>`}
    </article>`)}</div>`;
}

function Episodes({ subject }) {
  const { data, error, reload } = useLoaded((signal) => get("memory/episodes", { subject, limit: 100 }, signal), [subject]);
  if (error) return html`<${Fault} error=${error} retry=${reload} />`;
  if (!data) return html`<${Waiting} />`;
  if (!data.items.length) return html`<${Empty}>No session${subject && ` of ${subject}`} has ended yet.<//>`;
  return html`<div class="table" tabindex="0"><table><thead><tr><th>Session</th><th class="wide">Person</th><th>Ended</th><th>By</th><th class="number">Messages</th><th class="number wide">Turns</th><th class="number wide">Tool calls</th></tr></thead>
    <tbody>${data.items.map((each) => html`<tr><td><a href=${`#/sessions/${encodeURIComponent(each.session)}/${each.first}`}>${oneLine(each.title) || each.session}</a>${each.summary && html`<p class="small muted">${safe(each.summary)}</p>`}</td><td class="wide">${oneLine(each.subject)}</td>
      <td><time title=${wholeTime(each.endedAt)}>${shortTime(each.endedAt)}</time></td><td>${each.by}</td><td class="number">${each.messages}</td><td class="number wide">${each.turns}</td><td class="number wide">${each.toolCalls}</td></tr>`)}</tbody></table></div>`;
}
