// What a model would be sent now, or was sent by any call: the request, what was left out, and why.
import { get } from "./api.js";
import { count, oneLine, pretty, safe, seqOf, sessionOf, shortTime } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Fault, Waiting, useLoaded } from "./parts.js";
import { useTurns } from "./timeline.js";

const SHOWN = 200; // newest messages of a request that are read first
const LIMITS = { window: "the model's window", max_working_tokens: "max_working_tokens", max_messages: "max_messages" };

export function Context({ path, version, call: wanted }) {
  const [typed, setTyped] = useState(""); // kept when the view is drawn again meanwhile
  const [budget, setBudget] = useState("");
  const [call, setCall] = useState(wanted ?? "");
  const [last, setLast] = useState(SHOWN);
  useEffect(() => { if (wanted) setCall(wanted); }, [wanted]);
  const { turns, hasEarlier, more: readEarlier } = useTurns(path, version);
  const { data, error, reload } = useLoaded(
    (signal) => get(`${path}/context`, call ? { call, last } : { budget, last }, signal), [path, call ? "" : version, budget, call, last]);
  const calls = turns.flatMap((turn) => turn.calls
    .filter((each) => each.type === "model").map((each) => ({ ...each, turn: turn.number }))).reverse();
  return html`<div class="pad stack">
    <div class="row"><label class="row small grow">Sent by <select class="grow" value=${call} onChange=${(e) => setCall(e.target.value)}>
        <option value="">the next call</option>
        ${call && !calls.some((each) => String(each.seq) === call) && html`<option value=${call}>the call at entry ${call}</option>`}
        ${calls.map((each) => html`<option value=${String(each.seq)}>turn ${each.turn}, ${shortTime(each.startedAt)}, entry ${each.seq}${each.attempt > 1 ? `, attempt ${each.attempt}` : ""}</option>`)}
      </select></label>
      ${hasEarlier && html`<button class="quiet" onClick=${readEarlier}>Earlier calls</button>`}
      ${!call && html`<label class="row small">within <input type="number" min="1" size="7" placeholder="no limit" value=${typed} onInput=${(e) => setTyped(e.target.value)} onChange=${(e) => setBudget(e.target.value)} /> tokens</label>`}</div>
    ${error && html`<${Fault} error=${error} retry=${reload} />`}
    ${!data && !error && html`<${Waiting} />`}
    ${data && !error && html`<${Request} path=${path} data=${data} more=${() => setLast("")} />`}
  </div>`;
}

function Request({ path, data, more }) {
  const { reported, trimmed } = data;
  const whole = data.messages.length + data.earlier;
  return html`<p class="row"><strong>${count(data.tokens)} tokens</strong>
      ${reported && html`<span class="small">counted by the provider: ${count(reported.input + reported.cacheRead + reported.cacheWrite)}, of which ${count(reported.cacheRead)} from its cache</span>`}
      <span class="muted small mono">${oneLine(data.model)}${data.thinkingLevel ? ` · thinks: ${data.thinkingLevel}` : ""}</span></p>
    <p class="muted small">${count(whole)} ${whole === 1 ? "message" : "messages"}${data.dropped ? `; ${count(data.dropped)} older ${data.dropped === 1 ? "entry is" : "entries are"} left out` : data.overflow ? "; nothing else can be left out" : "; nothing is left out"}${data.skipped ? `; ${count(data.skipped)} cannot be read` : ""}${trimmed?.limit ? `, because of ${LIMITS[trimmed.limit] ?? trimmed.limit}${trimmed.tokens ? ` (${count(trimmed.tokens)} tokens)` : ""}` : ""}${trimmed?.recalled ? `; ${count(trimmed.recalled)} recalled texts did not fit` : ""}.</p>
    ${data.overflow && html`<p class="fault" role="status">Over budget: ${data.overflow.detail}.</p>`}
    ${data.system && html`<${Sent} role="system" text=${data.system} />`}
    ${data.tools.length > 0 && html`<${Sent} role="tools" line=${data.tools.map((each) => each.name).join(", ")} text=${data.tools.map(declared).join("\n\n")} />`}
    ${data.options && html`<${Sent} role="options" line=${optionsOf(data.options).join(", ") || "the defaults of the provider"} text=${pretty(data.options)} />`}
    ${data.recalled.map((each) => html`<details class="tool"><summary><strong>recalled</strong><span class="args truncate">${each.text === null ? "erased since" : oneLine(each.text)}</span></summary>
      <p class="small muted"><a href=${`#/sessions/${encodeURIComponent(sessionOf(each.entryId))}/${seqOf(each.entryId)}`}>source</a> · ${each.kind}${each.words.length ? `; words: ${safe(each.words.join(", "))}` : ""}${each.why.length ? `; ${safe(each.why.join(", "))}` : ""}${each.score === null ? "" : `; score ${each.score.toFixed(2)}`}</p>
      <pre class="plain" tabindex="0">${safe(each.text)}</pre></details>`)}
    ${data.earlier > 0 && html`<button class="quiet" onClick=${more}>${count(data.earlier)} earlier messages</button>`}
    ${data.messages.map((each) => html`<${Sent} role=${each.role} text=${each.parts.length === 1 && each.parts[0].type === "text" ? each.parts[0].text : pretty(each.parts)}
      line=${textOf(each)} href=${each.entryId && `#/${path}/${seqOf(each.entryId)}`} entry=${each.entryId && seqOf(each.entryId)} />`)}`;
}

const Sent = ({ role, text, line, href, entry }) => html`<details class="tool"><summary><strong>${role}</strong><span class="args truncate">${oneLine(line ?? text.slice(0, 300))}</span></summary>
  ${href && html`<p class="small"><a href=${href}>entry ${entry}</a></p>`}<pre class="plain" tabindex="0">${safe(text)}</pre></details>`;

const declared = ({ name, isLoaded, description, parameters }) => isLoaded
  ? `${name}: ${description}\n${pretty(parameters)}`
  : `${name}: its schema is not known here. No MCP server or program that is loaded now has this tool as it was then.`;

const optionsOf = ({ temperature, maxOutputTokens, outputSchema }) => [
  temperature !== null && `temperature ${temperature}`,
  maxOutputTokens !== null && `at most ${count(maxOutputTokens)} output tokens`,
  outputSchema !== null && "a schema of the answer",
].filter(Boolean);

const textOf = (message) => message.parts.map((part) => part.text ?? part.name ?? part.type).join(" ").slice(0, 300);
