// One flow, live: its graph or list of nodes, what waits for a person, the feed of a role, a composer.
import { get, post, remove, watch } from "../api.js";
import { oneLine, safe } from "../format.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { Fault, Waiting, attempt, needing } from "../parts.js";
import { Feed, useFeed } from "./feed.js";
import { Graph } from "./graph.js";
import { Improvement } from "./improvement.js";
import { useReader } from "./reader.js";
import { Consent, RoleHead } from "./roles.js";
import { STATES, runWords, titleOf, toldOf } from "./states.js";
import { Composer, Waits, ofFlow } from "./waits.js";

const PLACES = [["graph", "Graph"], ["list", "List"], ["improvement", "Improvement"]];
const MOST_TABS = 6;

/** The flow, read again after each change of it or of the sessions of its roles. */
function useFlow(id) {
  const path = `flows/${encodeURIComponent(id)}`;
  const [flow, setFlow] = useState(null);
  const [error, setError] = useState(null);
  const [connection, setConnection] = useState("waiting");
  const [version, setVersion] = useState(0);
  const hear = useRef(null);
  const reload = useCallback(() => setVersion((n) => n + 1), []);
  useReader(async (isOver) => {
    const found = await get(path);
    if (isOver()) return;
    setFlow(found);
    setError(null);
  }, setError, [path], version);
  useEffect(() => {
    let timer = null;
    const soon = () => {
      timer ??= setTimeout(() => {
        timer = null;
        reload();
      }, 80);
    };
    const isOurs = (event) => event.flowId === id || event.sessionId?.startsWith(`${id}__`);
    const stop = watch("events", undefined, {
      durable(event) {
        if (!isOurs(event)) return;
        hear.current?.("durable", event);
        soon();
      },
      live: (event) => hear.current?.("live", event),
      snapshot: (event) => hear.current?.("snapshot", event),
      state(state) {
        setConnection(state);
        if (state === "live") soon();
      },
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [id]);
  return { path, flow, error, connection, version, reload, hear };
}

export function Flow({ id, role: wanted, item, waiting }) {
  const { path, flow, error, connection, version, reload, hear } = useFlow(id);
  const [node, setNode] = useState(null);
  const [place, setPlace] = useState("graph");
  const [isFeedOpen, setFeedOpen] = useState(wanted !== undefined);
  const questions = useMemo(() => ofFlow(waiting, id), [waiting, id]);
  const roles = flow?.roles ?? [];
  const asking = questions.find((each) => each.target)?.target;
  const first = flow && (roleOf(flow, asking) ?? flow.nodes.find((each) => each.state === "active")?.role ?? roles[0]?.role);
  const role = wanted ?? first;
  const session = roles.find((each) => each.role === role)?.session ?? null;
  const feed = useFeed(id, role, session, version, hear);
  const choose = (next) => {
    setFeedOpen(true);
    location.hash = `#/flows/${encodeURIComponent(id)}/${encodeURIComponent(next)}`;
  };
  const chooseNode = (next) => {
    setNode(next);
    choose(flow.nodes.find((each) => each.id === next).role);
  };
  useEffect(() => { if (flow) document.title = `${flow.name} · perdure`; }, [flow?.name]);

  if (error && !flow) return html`<${Fault} error=${error} retry=${reload} /><p class="empty"><a href="#/flows">All flows</a></p>`;
  if (!flow) return html`<${Waiting} />`;
  const selected = [node, role, ...flow.nodes.filter((each) => each.role === role).map((each) => each.id)].filter(Boolean);
  const running = flow.nodes.find((each) => each.state === "active" && each.role === role)?.id
    ?? (flow.improvement?.roles.find((each) => each.role === role)?.state === "active" ? role : null);
  return html`<${Head} flow=${flow} path=${path} connection=${connection} reload=${reload} />
    <${Waits} flow=${flow} questions=${questions} path=${path} done=${reload} />
    <div class=${`flow ${isFeedOpen ? "feed-open" : ""}`}>
      <div class="column">
        <div class="tabs" role="group" aria-label="What is shown">${PLACES.filter(([name]) => name !== "improvement" || flow.improvement).map(([name, title]) => html`<button class="quiet" aria-pressed=${place === name} onClick=${() => setPlace(name)}>${title}</button>`)}
          <button class="quiet to-feed" onClick=${() => setFeedOpen(true)}>Feeds ›</button></div>
        ${place === "graph" && html`<${Graph} nodes=${flow.nodes} edges=${flow.edges} selected=${flow.nodes.some((each) => each.id === node) ? node : null} onSelect=${chooseNode} label=${`Graph of ${oneLine(flow.name)}: ${flow.nodes.length} nodes`} />`}
        ${place === "list" && html`<${Nodes} flow=${flow} choose=${chooseNode} />`}
        ${place === "improvement" && flow.improvement && html`<${Improvement} flow=${flow} choose=${choose} role=${role} />`}
      </div>
      <section class="side" aria-label="Feed">
        <div class="tabs"><button class="quiet to-graph" onClick=${() => setFeedOpen(false)}>‹ Graph</button>
          <${RoleTabs} roles=${roles} role=${role} choose=${choose} /></div>
        <${RoleHead} key=${role} role=${roles.find((each) => each.role === role)} path=${path} version=${version} done=${reload} />
        <${Feed} flow=${id} role=${role} target=${item} ...${feed} />
        <${Composer} path=${path} questions=${questions} selected=${selected} running=${running} done=${reload} />
      </section>
    </div>`;
}

/** The role of `target`, a node or a role. */
const roleOf = (flow, target) => (flow.roles.some((each) => each.role === target) ? target : flow.nodes.find((each) => each.id === target)?.role);

function Head({ flow, path, connection, reload }) {
  const [kind, words] = runWords(flow, flow.waits.length);
  const run = () => attempt(() => post(`${path}/resume`), "The flow goes on").then(reload);
  const erase = () => {
    if (!confirm(`Permanently delete the flow “${flow.name}” and the sessions of its roles? The files of its record stay.`)) return;
    attempt(() => remove(path), "Deleted").then((done) => { if (done !== undefined) location.hash = "#/flows"; });
  };
  return html`<header class="bar"><a href="#/flows" aria-label="All flows">←</a>
    <h1 class="truncate grow" title=${flow.id}>${oneLine(flow.name)}</h1>
    <span class=${`state ${kind}`} role="status">${words}</span>
    ${connection === "waiting" && html`<span class="state waiting pulse" role="status">connecting</span>`}
    ${flow.canResume && html`<button class="primary" ...${needing()} onClick=${run}>Resume</button>`}
    <${Consent} flow=${flow} path=${path} done=${reload} />
    <details class="menu"><summary aria-label="More">⋯</summary><div><dl class="facts small">
      <dt>Folder</dt><dd class="mono">${oneLine(flow.workspace)}</dd><dt>Record</dt><dd class="mono">${oneLine(flow.recordFolder)}</dd><dt>Id</dt><dd class="mono">${flow.id}</dd></dl>
      <button class="danger" ...${needing("admin")} onClick=${erase}>Delete the flow</button></div></details>
  </header>
  ${flow.error && html`<div class="fault" role="alert"><span>The flow stopped: ${safe(flow.error)}</span></div>`}
  ${flow.faults.length > 0 && html`<div class="fault" role="alert"><span>The workflow file was changed and cannot be used: ${safe(flow.faults.join("; "))}</span></div>`}`;
}

/** One button for each role, or a list where there are many. */
function RoleTabs({ roles, role, choose }) {
  if (roles.length > MOST_TABS) {
    return html`<select class="grow" aria-label="Role" value=${role} onChange=${(e) => choose(e.target.value)}>${roles.map((each) => html`<option value=${each.role}>${STATES[each.state][0]} ${oneLine(each.role)}</option>`)}</select>`;
  }
  return roles.map((each) => html`<button class="quiet" aria-pressed=${each.role === role} onClick=${() => choose(each.role)}>
    <span class=${`dot ${each.state}`} aria-hidden="true">${STATES[each.state][0]}</span> ${oneLine(each.role)}<span class="visually-hidden">, ${STATES[each.state][1]}</span></button>`);
}

/** The graph in words: each node, how it stands, and where it hands its work. */
function Nodes({ flow, choose }) {
  return html`<div class="scroll table"><table class="nodes"><thead><tr><th>Node</th><th>Role</th><th>State</th><th>Hands to</th></tr></thead>
    <tbody>${flow.nodes.map((node) => html`<tr key=${node.id}>
      <td><a href=${`#/flows/${encodeURIComponent(flow.id)}/${encodeURIComponent(node.role)}`} onClick=${(event) => { event.preventDefault(); choose(node.id); }} aria-label=${titleOf(node)}>${oneLine(node.id)}</a></td>
      <td>${node.session ? html`<a href=${`#/sessions/${encodeURIComponent(node.session)}`}>${oneLine(node.role)}</a>` : oneLine(node.role)}</td>
      <td><span class=${`dot ${node.state}`} aria-hidden="true">${STATES[node.state][0]}</span> ${STATES[node.state][1]}${node.reason && html` <span class="muted small">${oneLine(node.reason)}</span>`}</td>
      <td class="small">${flow.edges.filter((edge) => edge.from === node.id).map((edge) => html`<div title=${toldOf(edge)}>${oneLine(edge.to)}${edge.artifact && html` <span class="muted">${edge.state === "back" ? "↩" : "✓"} ${oneLine(edge.artifact)}</span>`}</div>`)}</td></tr>`)}</tbody></table></div>`;
}
