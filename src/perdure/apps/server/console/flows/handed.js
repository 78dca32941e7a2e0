// The files of a handoff that waits for approval: contents, and the change since an earlier version.
import { get } from "../api.js";
import { bytes, oneLine, safe } from "../format.js";
import { html, useState } from "../html.js";
import { Diff } from "../inbox.js";
import { Markdown } from "../markdown.js";
import { Fault, Waiting, useLoaded } from "../parts.js";

export function Handed({ asked }) {
  const path = `flows/${encodeURIComponent(asked.flow)}/handoffs/${encodeURIComponent(asked.target)}`;
  const { data, error, reload } = useLoaded((signal) => get(path, {}, signal), [path, asked.id]);
  if (error) return html`<${Fault} error=${error} retry=${reload} />`;
  if (!data) return html`<${Waiting} />`;
  return data.items.map((file) => html`<${File} key=${file.path} file=${file} />`);
}

/** One file: its change first, if an earlier version was handed over. */
function File({ file }) {
  const [view, setView] = useState(file.diff ? "change" : "text");
  const views = [["change", "Change", file.diff], ["text", "Contents", file.text]].filter(([, , held]) => held);
  const about = [file.sizeBytes === null ? "" : bytes(file.sizeBytes), file.diff === "" ? "as in the earlier version" : "", `for ${file.to.map(oneLine).join(", ")}`];
  return html`<details class="handed" open><summary><strong class="mono">${oneLine(file.path)}</strong> <span>${about.filter(Boolean).join(" · ")}</span></summary>
    <div class="stack">
      ${views.length > 1 && html`<div class="row">${views.map(([name, title]) => html`<button class="quiet" aria-pressed=${view === name} onClick=${() => setView(name)}>${title}</button>`)}</div>`}
      ${file.text === null && html`<p class="muted small">${file.sizeBytes === null ? "Its content is not in the store." : "It is binary or too large to show."}</p>`}
      ${view === "change" && file.diff ? html`<${Diff} text=${file.diff} />` : file.text !== null && html`<${Text} file=${file} />`}
    </div></details>`;
}

const Text = ({ file }) => (/\.(md|markdown)$/i.test(file.path)
  ? html`<div class="document" tabindex="0"><${Markdown} text=${file.text} /></div>`
  : html`<pre class="plain" tabindex="0">${safe(file.text)}</pre>`);
