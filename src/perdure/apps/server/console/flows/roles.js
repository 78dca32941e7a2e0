// A role: its session, its context with compaction, its configuration; the consent of all roles.
import { get, post, put } from "../api.js";
import { count, oneLine } from "../format.js";
import { html, useState } from "../html.js";
import { attempt, needing } from "../parts.js";
import { useReader } from "./reader.js";
import { STATES } from "./states.js";

const RADIUS = 7;
const ROUND = 2 * Math.PI * RADIUS;

/** How full the context of a role is; a click compacts it. */
function Ring({ role, path, done }) {
  const [isBusy, setBusy] = useState(false);
  const { contextTokens: used, contextWindow: room } = role;
  const share = used && room ? Math.min(used / room, 1) : null;
  const told = share === null ? `${count(used ?? 0)} tokens in the context` : `${Math.round(100 * share)} % of the context: ${count(used)} of ${count(room)} tokens`;
  async function compact() {
    if (!confirm(`${told}. Summarize what ${role.role} did at its node? The log keeps everything.`)) return;
    setBusy(true);
    await attempt(() => post(`${path}/roles/${encodeURIComponent(role.role)}/compact`), "Compacted; the log keeps everything");
    setBusy(false);
    done();
  }
  return html`<button class=${`quiet ring ${share >= 0.8 ? "full" : ""}`} disabled=${isBusy || !role.session} onClick=${compact} title=${`${told}. Compact it.`} aria-label=${`${told}. Compact it.`} ...${needing()}>
    <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true"><circle class="back" cx="10" cy="10" r=${RADIUS} /><circle class="front" cx="10" cy="10" r=${RADIUS} transform="rotate(-90 10 10)" stroke-dasharray=${`${ROUND * (share ?? 0)} ${ROUND}`} /></svg>
    ${isBusy ? html`<span class="pulse">compacting…</span>` : share === null ? count(used ?? 0) : `${Math.round(100 * share)} %`}</button>`;
}

/** `role` as the flow shows it; what else is known of it is read after each change. */
export function RoleHead({ role, path, version, done }) {
  const [isOpen, setOpen] = useState(false);
  const [known, setKnown] = useState(null);
  useReader(async (isOver) => {
    if (!role) return;
    const found = await get(`${path}/roles/${encodeURIComponent(role.role)}`);
    if (!isOver()) setKnown(found);
  }, () => setKnown(null), [path, role?.role], version);
  if (!role) return null;
  return html`<div class="role-head small"><div class="row"><span class=${`dot ${role.state}`}>${STATES[role.state][0]} ${STATES[role.state][1]}</span>
    ${role.session && html`<a href=${`#/sessions/${encodeURIComponent(role.session)}`}>Session</a>`}
    <span class="muted mono truncate grow">${oneLine(known?.model)}</span>
    <button class="quiet" disabled=${!known} aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Configure</button>
    ${known && html`<${Ring} role=${known} path=${path} done=${done} />`}</div>
    ${isOpen && known && html`<${Configure} role=${known} path=${path} done=${() => { setOpen(false); done(); }} />`}</div>`;
}

const names = (text) => text.split(/[\s,]+/).filter(Boolean);

/** Sets the model, the skills (until the role begins) and the tools of a role. */
function Configure({ role, path, done }) {
  const [model, setModel] = useState(role.model ?? "");
  const [skills, setSkills] = useState((role.skills ?? []).join(" "));
  const [tools, setTools] = useState((role.tools ?? []).join(" "));
  async function save(event) {
    event.preventDefault();
    const body = { model: model.trim() || null, skills: skills.trim() && !role.session ? names(skills) : null, tools: tools.trim() ? names(tools) : null };
    if (await attempt(() => put(`${path}/roles/${encodeURIComponent(role.role)}`, body), "From the next turn on") !== undefined) done();
  }
  const field = (title, value, set, hint, isOff) => html`<label>${title}<input class="mono" value=${value} disabled=${isOff} placeholder=${hint} onInput=${(e) => set(e.target.value)} /></label>`;
  return html`<form class="configure" onSubmit=${save}>
    ${field("Model", model, setModel, "as its agent says")}
    ${field("Skills", skills, setSkills, role.session ? "fixed: the role has begun" : "as its file says", Boolean(role.session))}
    ${field("Tools", tools, setTools, "all of its agent")}
    <button class="primary" ...${needing()}>Save</button></form>`;
}

const MODES = [["no-access", "ask for everything"], ["partial-access", "files free, commands ask"], ["full-access", "never ask"]];

/** The consent mode of a flow, and what was allowed for all of it. */
export function Consent({ flow, path, done }) {
  const { mode, commands, tools } = flow.consent;
  const set = (body, told) => attempt(() => post(`${path}/consent`, body), told).then(done);
  const change = (event) => {
    const next = event.target.value;
    event.target.value = mode;
    if (next !== "full-access" || confirm("Roles then write files and run any program as you, without asking. Allow it?")) set({ mode: next }, `Consent: ${next}`);
  };
  const granted = [...commands.map((name) => ["bash", name]), ...tools.map((name) => ["mcp", name])];
  return html`<label class=${`row small consent ${mode}`}>Consent <select value=${mode} disabled=${flow.status === "completed"} onChange=${change} aria-label="Consent mode" ...${needing()}>${MODES.map(([name, about]) => html`<option value=${name} title=${about}>${name}</option>`)}</select></label>
    ${granted.length > 0 && html`<details class="menu"><summary>${count(granted.length)} allowed</summary><div>${granted.map(([tool, name]) => html`<span class="row"><code class="grow">${oneLine(name)}</code>
      <button class="quiet" ...${needing()} onClick=${() => set({ tool, command: name, isRevoked: true }, "Revoked")}>Revoke</button></span>`)}</div></details>`}`;
}
