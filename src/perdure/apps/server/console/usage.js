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
  const daily = useLoaded((signal) => get("usage", { by, daily: true, since }, signal), [by, days]);
  const activity = useLoaded((signal) => get("activity", { by: "day", since: new Date(Date.now() - DAYS * 86_400_000).toISOString() }, signal), []);
  const edits = useLoaded((signal) => get("edits", { last: 30 }, signal), []);
  return html`<header class="bar"><h1>Usage</h1>
      <select aria-label="Group by" value=${by} onChange=${(e) => setBy(e.target.value)}>${Object.entries(GROUPS).map(([name, title]) => html`<option value=${name}>by ${title}</option>`)}</select>
      <select aria-label="Period" value=${days} onChange=${(e) => setDays(e.target.value)}><option value="7">7 days</option><option value="30">30 days</option><option value="365">a year</option><option value="">always</option></select></header>
    <div class="scroll pad stack">
      ${[usage, daily, activity, edits].map(({ error, reload }) => error && html`<${Fault} error=${error} retry=${reload} />`)}
      <section class="card stack"><h2>Tokens and cost</h2>${usage.data ? html`<${Totals} rows=${usage.data.items} />` : html`<${Waiting} />`}</section>
      <section class="card stack"><h2>Over time</h2>${daily.data ? html`<${Chart} rows=${daily.data.items} by=${by} />` : html`<${Waiting} />`}</section>
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

const MEASURES = { cost: money, tokens: (number) => `${count(number)} tokens` };
const MOST_SERIES = 5;
const OTHERS = Symbol("others");

/** The dated rows as series: the largest groups, and one of all others. */
function seriesOf(rows, value) {
  const sums = new Map();
  for (const row of rows) sums.set(row.key, (sums.get(row.key) ?? 0) + value(row));
  const priced = new Set(rows.filter((row) => row.costMicrocents !== null).map((row) => row.key));
  const largest = [...sums].sort(([, a], [, b]) => b - a);
  const found = largest.slice(0, MOST_SERIES)
    .map(([key, sum]) => ({ key, sum, name: oneLine(key) || "not named", isUnpriced: !priced.has(key) }));
  const rest = largest.slice(MOST_SERIES);
  if (rest.length) found.push({ key: OTHERS, sum: rest.reduce((so, [, sum]) => so + sum, 0), name: `${count(rest.length)} others` });
  return found;
}

/** For each day one bar of the cost or the tokens of each group. Calls without a price are marked. */
function Chart({ rows, by }) {
  const dated = rows.filter((row) => row.day);
  const [wanted, setMeasure] = useState("");
  if (!dated.length) return html`<${Empty}>No model was called in this time.<//>`;
  const measure = wanted || (dated.some((row) => row.costMicrocents) ? "cost" : "tokens");
  const value = (row) => (measure === "cost" ? row.costMicrocents ?? 0 : total(row));
  const words = MEASURES[measure];
  const series = by === "day" ? [{ key: OTHERS, name: "" }] : seriesOf(dated, value);
  const days = new Map();
  for (const row of dated) {
    const day = days.get(row.day) ?? { sum: 0, unpriced: 0, parts: series.map(() => 0) };
    const own = series.findIndex((each) => each.key === row.key);
    day.parts[own < 0 ? series.length - 1 : own] += value(row);
    day.sum += value(row);
    day.unpriced += measure === "cost" ? row.unpricedCalls : 0;
    days.set(row.day, day);
  }
  const shown = [...days.values()];
  const names = [...days.keys()].sort();
  const [first, last] = [names[0], names.at(-1)];
  const sum = shown.reduce((so, day) => so + day.sum, 0);
  const unpriced = shown.filter((day) => day.unpriced);
  const calls = unpriced.reduce((so, day) => so + day.unpriced, 0);
  return html`<div class="row"><select aria-label="Measure" value=${measure} onChange=${(e) => setMeasure(e.target.value)}>
      ${Object.keys(MEASURES).map((each) => html`<option value=${each}>${each}</option>`)}</select></div>
    <${Bars} days=${days} series=${series} words=${words} label=${`${words(sum)} from ${first} to ${last}`} first=${first} last=${last} />
    ${by !== "day" && html`<ul class="legend">${series.map((each, n) => html`<li><i class=${`series-${n + 1}`}></i><span class="mono">${each.name}</span> <span class="muted">${measure === "cost" && each.isUnpriced ? money(null) : words(each.sum)}</span></li>`)}</ul>`}
    <p class="small muted">${words(sum)} in all, ${words(Math.max(...shown.map((day) => day.sum)))} on the busiest day; ${first} to ${last}</p>
    ${calls > 0 && html`<p class="small"><i class="unpriced"></i> ${count(calls)} ${calls === 1 ? "call has" : "calls have"} no price, on ${count(unpriced.length)} ${unpriced.length === 1 ? "day" : "days"}: the tokens include them.</p>`}`;
}

function Bars({ days, series, words, label, first, last }) {
  const number = (day) => Date.parse(day) / 86_400_000;
  const most = Math.max(...[...days.values()].map((day) => day.sum), 1);
  const width = 600 / Math.max(number(last) - number(first) + 1, 14);
  const bars = [];
  for (const [name, day] of days) {
    const x = (number(name) - number(first)) * width;
    let top = 99;
    day.parts.forEach((part, n) => {
      if (!part) return;
      const height = (91 * part) / most;
      top -= height;
      bars.push(html`<rect class=${`series-${n + 1}`} x=${x} width=${width * 0.85} y=${top} height=${height}><title>${name}${series[n].name && `, ${series[n].name}`}: ${words(part)}</title></rect>`);
    });
    if (day.unpriced) bars.push(html`<rect class="unpriced" x=${x} width=${width * 0.85} y=${Math.max(top - 5, 1)} height="4"><title>${name}: ${count(day.unpriced)} without a price</title></rect>`);
  }
  return html`<svg class="chart" viewBox="0 0 600 100" preserveAspectRatio="none" role="img" aria-label=${label}>
    <line class="axis" x1="0" x2="600" y1="99.5" y2="99.5" />${bars}</svg>`;
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
