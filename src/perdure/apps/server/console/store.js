// The store: its size and kind, and whether every hash of it holds.
import { get, post } from "./api.js";
import { bytes, count } from "./format.js";
import { html, useState } from "./html.js";
import { Fault, Waiting, attempt, useLoaded } from "./parts.js";

export function Store() {
  const { data, error, reload } = useLoaded((signal) => get("store", {}, signal), []);
  const [checked, setChecked] = useState(null);
  async function verify() {
    setChecked("running");
    setChecked((await attempt(() => post("store/verify"))) ?? null);
  }
  return html`<header class="bar"><h1>Store</h1><button onClick=${reload}>Refresh</button></header>
    <div class="scroll pad stack">
      ${error && html`<${Fault} error=${error} retry=${reload} />`}
      ${!data && !error && html`<${Waiting} />`}
      ${data && html`<section class="card"><dl class="facts">
        <dt>Backend</dt><dd>${data.backend}, ${data.engine}</dd><dt>Namespace</dt><dd>${data.namespace}</dd>
        <dt>Sessions and flows</dt><dd>${count(data.streams)}</dd><dt>Entries</dt><dd>${count(data.entries)}</dd>
        <dt>Size</dt><dd>${bytes(data.sizeBytes)}, of which ${bytes(data.payloadBytes)} is content</dd>
        <dt>Durability</dt><dd>${data.durability}</dd><dt>Encrypted</dt><dd>${data.isEncrypted ? "yes" : "no"}</dd></dl></section>`}
      <section class="card stack"><h2>Verification</h2><p class="muted">Reads every entry and checks every hash.</p>
        <div class="row"><button class="primary" disabled=${checked === "running"} onClick=${verify}>Verify</button>
        <span role="status">${checked === "running" ? "Verifying…" : checked && (checked.isOk
          ? `${count(checked.entries)} entries of ${count(checked.streams)} sessions and flows: no fault`
          : `${checked.problems.length} faults`)}</span></div>
        ${checked?.problems?.length > 0 && html`<pre class="plain">${JSON.stringify(checked.problems, null, 2)}</pre>`}</section>
      <p class="muted small">Backups, retention and repair: <code>perdure store --help</code>.</p>
    </div>`;
}
