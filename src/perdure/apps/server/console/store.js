// The store: its size, its health, its backups, and how long it keeps what.
import { get, post } from "./api.js";
import { bytes, count, oneLine, pretty, wholeTime } from "./format.js";
import { html, useState } from "./html.js";
import { Fault, Waiting, attempt, needing, useLoaded } from "./parts.js";

/** The newest result of a verification, kept while the page is open: {found, at}. */
let verified = null;

export function Store() {
  const { data, error, reload } = useLoaded((signal) => get("store", {}, signal), []);
  const upkeep = useLoaded((signal) => get("store/maintenance", {}, signal), []);
  const again = () => [reload, upkeep.reload].forEach((each) => each());
  return html`<header class="bar"><h1>Store</h1><button onClick=${again}>Refresh</button></header>
    <div class="scroll pad stack">
      ${error && html`<${Fault} error=${error} retry=${reload} />`}
      ${!data && !error && html`<${Waiting} />`}
      ${data && html`<section class="card stack"><h2>Facts</h2><dl class="facts">
        <dt>Backend</dt><dd>${data.backend}, ${data.engine}</dd><dt>Namespace</dt><dd>${data.namespace}</dd>
        <dt>Logs</dt><dd>${count(data.streams)} of sessions, flows and memory</dd><dt>Entries</dt><dd>${count(data.entries)}</dd>
        <dt>Size</dt><dd>${bytes(data.sizeBytes)}, of which ${bytes(data.payloadBytes)} is content</dd>
        <dt>Durability</dt><dd>${data.durability}</dd><dt>Encrypted</dt><dd>${data.isEncrypted ? "yes" : "no"}</dd></dl></section>`}
      <${Health} />
      ${upkeep.error?.status === 403 ? html`<p class="muted">Backups and retention are shown to the role admin.</p>`
        : upkeep.error && html`<${Fault} error=${upkeep.error} retry=${upkeep.reload} />`}
      ${!upkeep.data && !upkeep.error && html`<${Waiting} />`}
      ${upkeep.data && html`<${Backups} backups=${upkeep.data.backups} /><${Retention} rules=${upkeep.data.retention} />`}
    </div>`;
}

function Health() {
  const [newest, setNewest] = useState(verified);
  const [isRunning, setRunning] = useState(false);
  async function verify() {
    setRunning(true);
    const found = await attempt(() => post("store/verify"));
    if (found) {
      verified = { found, at: new Date().toISOString() };
      setNewest(verified);
    }
    setRunning(false);
  }
  const { found, at } = newest ?? {};
  return html`<section class="card stack" aria-label="Health"><h2>Health</h2><p class="muted">Verification reads every entry and checks every hash.</p>
    <div class="row"><button class="primary" disabled=${isRunning} ...${needing("admin")} onClick=${verify}>Verify</button>
      <span role="status">${isRunning ? html`<span class="state running pulse">verifying</span>`
        : !found ? html`<span class="muted">Not verified since this page was opened.</span>`
          : html`<span class=${`state ${found.isOk ? "good" : "error"}`}>${found.isOk ? "no fault" : `${count(found.problems.length)} ${found.problems.length === 1 ? "fault" : "faults"}`}</span>
            ${" "}${count(found.entries)} entries of ${count(found.streams)} sessions and flows, <span class="muted">${wholeTime(at)}</span>`}</span></div>
    ${!isRunning && found?.problems.length > 0 && html`<pre class="plain" tabindex="0">${pretty(found.problems)}</pre>
      <p class="muted small">Repair: <code>perdure store repair</code>, or restore a backup.</p>`}</section>`;
}

function Backups({ backups }) {
  return html`<section class="card stack" aria-label="Backups"><h2>Backups</h2>
    ${backups === null ? html`<p class="muted">This backend has no backups of its own.</p>`
      : backups.length === 0 ? html`<p>No backup was made yet.</p>`
        : html`<div class="table" tabindex="0"><table><thead><tr><th>Made</th><th>Place</th></tr></thead><tbody>${backups.map((each) => html`<tr>
            <td class="nowrap">${wholeTime(each.at)}</td><td class="mono">${oneLine(each.path)}</td></tr>`)}</tbody></table></div>`}
    <p class="muted small">Make one: <code>perdure store backup FOLDER</code>. Restore one: <code>perdure store restore FOLDER</code>.</p></section>`;
}

const days = (seconds) => (seconds % 86_400 === 0 ? `${count(seconds / 86_400)} ${seconds === 86_400 ? "day" : "days"}` : `${count(Math.round(seconds / 3_600))} hours`);

function Retention({ rules }) {
  const limits = rules === null ? [] : [
    ["Age of a session", rules.maxAgeS, days], ["Time without a message", rules.maxIdleS, days],
    ["Sessions", rules.maxSessions, count], ["Size", rules.maxBytes, bytes],
  ].filter(([, limit]) => limit !== null);
  return html`<section class="card stack" aria-label="Retention"><h2>Retention</h2>
    ${rules === null ? html`<p class="muted">This backend has no retention rules.</p>`
      : limits.length === 0 ? html`<p>No rule: every session is kept.</p>`
        : html`<dl class="facts">${limits.map(([name, limit, words]) => html`<dt>${name}</dt><dd>at most ${words(limit)}</dd>`)}</dl>
          <p>${rules.expiring === 0 ? "No session is over a limit." : `${count(rules.expiring)} ${rules.expiring === 1 ? "session is" : "sessions are"} over a limit; the next run removes ${rules.expiring === 1 ? "it" : "them"}.`}</p>`}
    <p class="muted small">Set and apply rules: <code>perdure store retention</code>.</p></section>`;
}
