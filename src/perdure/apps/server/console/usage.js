// Tokens and cost by model, agent, program, project, person or day; activity as a heat map; recently edited files.
import { get } from "./api.js";
import { count, money, oneLine, seqOf, wholeTime } from "./format.js";
import { html, useState } from "./html.js";
import { Empty, Fault, Waiting, useLoaded } from "./parts.js";

const DAYS = 7 * 26;
const GROUPS = { model: "model", agent: "agent", source: "program", project: "project", subject: "person", day: "day", session: "session" };

export function Usage() {
  const [by, setBy] = useState("model");
  const [days, setDays] = useState("30");
  const since = days ? new Date(Date.now() - Number(days) * 86_400_000).toISOString() : "";
  const usage = useLoaded((signal) => get("usage", { by, since }, signal), [by, days]);
  const daily = useLoaded((signal) => get("usage", { by: "day", since }, signal), [days]);
  const activity = useLoaded((signal) => get("activity", { by: "day", since: new Date(Date.now() - DAYS * 86_400_000).toISOString() }, signal), []);
  const edits = useLoaded((signal) => get("edits", { last: 30 }, signal), []);
  return html`<header class="bar"><h1>Usage</h1>
      <select aria-label="Group by" value=${by} onChange=${(e) => setBy(e.target.value)}>${Object.entries(GROUPS).map(([name, title]) => html`<option value=${name}>by ${title}</option>`)}</select>
      <select aria-label="Period" value=${days} onChange=${(e) => setDays(e.target.value)}><option value="7">7 days</option><option value="30">30 days</option><option value="365">a year</option><option value="">always</option></select></header>
    <div class="scroll pad stack">
      ${[usage, daily, activity, edits].map(({ error, reload }) => error && html`<${Fault} error=${error} retry=${reload} />`)}
      <section class="card stack"><h2>Tokens and cost</h2>${usage.data ? html`<${Totals} rows=${usage.data.items} />` : html`<${Waiting} />`}</section>
      <section class="card stack"><h2>Over time</h2>${daily.data ? html`<${Chart} rows=${daily.data.items} />` : html`<${Waiting} />`}</section>
      <section class="card stack"><h2>Activity</h2>${activity.data ? html`<${Heat} days=${activity.data.items} />` : html`<${Waiting} />`}</section>
      <section class="card stack"><h2>Edited files</h2>${edits.data ? html`<${Edits} files=${edits.data.items} />` : html`<${Waiting} />`}</section>
    </div>`;
}

const total = (row) => row.tokens.input + row.tokens.output + row.tokens.cacheRead + row.tokens.cacheWrite;

function Totals({ rows }) {
  if (!rows.length) return html`<${Empty}>No model was called in this time.<//>`;
  const most = Math.max(...rows.map(total), 1);
  return html`<div class="table" tabindex="0"><table><thead><tr><th>Of</th><th class="wide"></th><th class="number">Tokens</th><th class="number wide">Cache reads</th><th class="number">Calls</th><th class="number">Cost</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr><td class="mono">${oneLine(row.key) || "not named"}</td>
      <td class="wide"><svg width="120" height="10" role="img" aria-label=${`${Math.round((100 * total(row)) / most)} %`}><rect class="fill" width=${(120 * total(row)) / most} height="10" rx="2" /></svg></td>
      <td class="number">${count(total(row))}</td><td class="number wide">${count(row.tokens.cacheRead)}</td><td class="number">${count(row.calls)}</td>
      <td class="number" title=${row.unpricedCalls ? `${row.unpricedCalls} calls without a price` : ""}>${money(row.costMicrocents)}${row.unpricedCalls && row.costMicrocents !== null ? " +" : ""}</td></tr>`)}</tbody></table></div>`;
}

/** A bar for each day: its cost, or its tokens if no call has a price. */
function Chart({ rows }) {
  const dated = rows.filter((row) => row.key);
  if (!dated.length) return html`<${Empty}>No model was called in this time.<//>`;
  const isPriced = dated.some((row) => row.costMicrocents);
  const value = (row) => (isPriced ? row.costMicrocents ?? 0 : total(row));
  const words = (number) => (isPriced ? money(number) : `${count(number)} tokens`);
  const day = (key) => Date.parse(key) / 86_400_000;
  const [first, last] = [day(dated[0].key), day(dated.at(-1).key)];
  const most = Math.max(...dated.map(value), 1);
  const width = 600 / Math.max(last - first + 1, 14);
  const sum = dated.reduce((so, row) => so + value(row), 0);
  return html`<svg class="chart" viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label=${`${words(sum)} from ${dated[0].key} to ${dated.at(-1).key}`}>
      <line class="axis" x1="0" x2="600" y1="99.5" y2="99.5" />
      ${dated.map((row) => html`<rect class="fill" x=${(day(row.key) - first) * width} width=${width * 0.85} y=${99 - (96 * value(row)) / most} height=${(96 * value(row)) / most}><title>${row.key}: ${words(value(row))}</title></rect>`)}</svg>
    <p class="small muted">${words(sum)} in all, ${words(most)} on the busiest day; ${dated[0].key} to ${dated.at(-1).key}</p>`;
}

/** Shows the newest days first where not all fit. */
const toEnd = (box) => { if (box) box.scrollLeft = box.scrollWidth; };

function Heat({ days }) {
  const known = new Map(days.map((each) => [each.key, each]));
  const most = Math.max(...days.map((each) => each.messages), 1);
  const today = new Date();
  const first = new Date(today.getTime() - DAYS * 86_400_000);
  first.setDate(first.getDate() - first.getDay());
  const cells = [];
  for (const day = new Date(first); day <= today; day.setDate(day.getDate() + 1)) {
    const key = day.toISOString().slice(0, 10);
    const messages = known.get(key)?.messages ?? 0;
    const level = messages ? Math.ceil((4 * messages) / most) : 0;
    cells.push(html`<i class=${`h${level}`} title=${`${key}: ${messages} messages`}></i>`);
  }
  const sum = days.reduce((so, each) => so + each.messages, 0);
  return html`<div class="table" tabindex="0" ref=${toEnd}><div class="heat" role="img" aria-label=${`${sum} messages on ${days.length} days`}>${cells}</div></div>
    <p class="small muted">${count(sum)} messages on ${count(days.length)} ${days.length === 1 ? "day" : "days"}</p>`;
}

function Edits({ files }) {
  if (!files.length) return html`<${Empty}>No tool has changed a file.<//>`;
  return html`<div class="table" tabindex="0"><table><tbody>${files.map((each) => html`<tr><td class="mono"><a href=${`#/sessions/${encodeURIComponent(each.session)}/${seqOf(each.entryId)}`}>${oneLine(each.path)}</a></td>
    <td class="wide muted small">${oneLine(each.folder)}</td><td class="wide small">${oneLine(each.tool)}</td><td class="wide number small">${count(each.edits)}</td><td class="small muted">${wholeTime(each.at)}</td></tr>`)}</tbody></table></div>`;
}
