// What a model would be sent now, within a budget: the whole request, and how much was left out.
import { get } from "./api.js";
import { count, oneLine, pretty, safe, seqOf } from "./format.js";
import { html, useState } from "./html.js";
import { Fault, Waiting, useLoaded } from "./parts.js";

export function Context({ path, version }) {
  const [budget, setBudget] = useState("");
  const { data, error, reload } = useLoaded((signal) => get(`${path}/context`, { budget }, signal), [path, version, budget]);
  if (error && !data) return html`<${Fault} error=${error} retry=${reload} />`;
  if (!data) return html`<${Waiting} />`;
  return html`<div class="pad stack">
    <div class="row"><strong>${count(data.tokens)} tokens</strong><span class="muted small mono">${oneLine(data.model)}</span>
      <label class="row small">within <input type="number" min="1" size="7" placeholder="no limit" value=${budget} onChange=${(e) => setBudget(e.target.value)} /></label></div>
    <p class="muted small">${count(data.messages.length)} messages${data.dropped ? `; ${count(data.dropped)} older entries are left out` : ""}${data.skipped ? `; ${count(data.skipped)} cannot be read` : ""}</p>
    ${data.messages.map((each) => html`<details class="tool"><summary><strong>${each.role}</strong><span class="args truncate">${oneLine(textOf(each))}</span>
      ${each.entryId && html`<a class="small" href=${`#/${path}/${seqOf(each.entryId)}`}>entry ${seqOf(each.entryId)}</a>`}</summary>
      <pre class="plain">${each.parts.length === 1 && each.parts[0].type === "text" ? safe(each.parts[0].text) : pretty(each.parts)}</pre></details>`)}
  </div>`;
}

const textOf = (message) => message.parts.map((part) => part.text ?? part.name ?? part.type).join(" ").slice(0, 300);
