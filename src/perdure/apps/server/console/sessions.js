// All sessions in one list, with filters, and a search over everything that was said.
import { get, post, watch } from "./api.js";
import { count, flat, money, oneLine, shortTime, wholeTime } from "./format.js";
import { html, useCallback, useEffect, useMemo, useState } from "./html.js";
import { Rows } from "./list.js";
import { Empty, Fault, State, Waiting, attempt, needing, useLoaded, useSettled } from "./parts.js";

const STATES = ["", "running", "waiting", "interrupted", "scheduled", "idle", "ended"];
const PERIODS = [["", "any time"], ["1", "last day"], ["7", "7 days"], ["30", "30 days"]];
const PAGE = 40;
const MOST_REFRESHED_MS = 1_000;
const MOVES = /^(session:|agent:message|inbox:|agent:approval)/;

const FILTERS = [["agent", "Agent"], ["subject", "Person"], ["folder", "Folder"], ["source", "Program"]];
const NONE = { state: "", subject: "", folder: "", source: "", agent: "", since: "", scope: "listed" };

const isNarrowed = (filters) => Object.keys(NONE).some((name) => name !== "scope" && filters[name]);

const link = (session, entry) => `#/sessions/${encodeURIComponent(session)}${entry === undefined ? "" : `/${entry}`}`;

export function Sessions({ query }) {
  const [text, setText] = useState(query);
  const [filters, setFilters] = useState(NONE);
  const [values, setValues] = useState(null);
  const [hasAll, setAll] = useState(false);
  const settled = useSettled(text.trim(), 120);
  const wanted = useSettled(filters, 200);
  useEscape(text !== "", () => setText(""));
  const load = () => { if (!values) get("session-values").then(setValues, () => {}); };
  const set = (name) => (event) => setFilters((old) => ({ ...old, [name]: event.target.value }));
  const setPeriod = ({ target }) => setFilters((old) => (
    { ...old, since: target.value && new Date(Date.now() - Number(target.value) * 86_400_000).toISOString() }));
  return html`
    <header class=${`bar ${hasAll ? "has-all" : ""}`}>
      <h1 class="visually-hidden">Sessions</h1>
      <input class="grow" type="search" data-key="/" placeholder="Search everything said" aria-label="Search everything said"
        value=${text} onInput=${(e) => setText(e.target.value)} />
      <button class="quiet narrow" aria-pressed=${hasAll} onClick=${() => setAll(!hasAll)}>Filters</button>
      <select aria-label="State" class="wide" value=${filters.state} onChange=${set("state")}>
        ${STATES.map((each) => html`<option value=${each}>${each || "any state"}</option>`)}
      </select>
      ${FILTERS.map(([name, title]) => html`<input class="wide" placeholder=${title.toLowerCase()} aria-label=${title} size="6" list=${`values-${name}`} value=${filters[name]} onFocus=${load} onInput=${set(name)} />
        <datalist id=${`values-${name}`}>${(values?.[`${name}s`] ?? []).map((each) => html`<option value=${each} />`)}</datalist>`)}
      <select aria-label="Last active" class="wide" onChange=${setPeriod}>
        ${PERIODS.map(([days, words]) => html`<option value=${days}>${words}</option>`)}
      </select>
      <select class="wide" aria-label="Which sessions" value=${filters.scope} onChange=${set("scope")}>
        <option value="listed">of people</option><option value="all">all</option>
      </select>
      <${NewSession} />
    </header>
    ${settled ? html`<${Hits} text=${settled} filters=${wanted} />` : html`<${List} filters=${wanted} />`}`;
}

/** Call `leave` on Escape outside of fields and dialogs: in a field it only leaves the field. */
function useEscape(isUsed, leave) {
  useEffect(() => {
    if (!isUsed) return undefined;
    const pressed = ({ key, target }) => {
      if (key === "Escape" && !target.closest("input, textarea, select, dialog")) leave();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [isUsed]);
}

function NewSession() {
  const [agents, setAgents] = useState([]);
  useEffect(() => { get("agents").then((page) => setAgents(page.items), () => {}); }, []);
  const begin = (agent) => attempt(async () => {
    const made = await post("sessions", { agent });
    location.hash = link(made.id);
  });
  if (agents.length <= 1) return html`<button class="primary" data-key="n" disabled=${!agents.length} ...${needing()} onClick=${() => begin(agents[0].id)}>New session</button>`;
  return html`<select class="primary" data-key="n" aria-label="New session with agent" ...${needing()} value="" onChange=${(e) => begin(e.target.value)}>
    <option value="">New session…</option>${agents.map((each) => html`<option value=${each.id}>${each.name ?? each.id}</option>`)}
  </select>`;
}

function List({ filters }) {
  const [sessions, setSessions] = useState(null);
  const [error, setError] = useState(null);
  const [selected, setSelected] = useState(-1);
  const [costs, setCosts] = useState(new Map());
  const isShown = sessions !== null;
  // What belongs to these filters: an answer to earlier ones is dropped.
  const listing = useMemo(() => ({ control: new AbortController(), next: null, isLoading: false }), [filters]);

  const load = useCallback(async (isMore) => {
    if (listing.isLoading || (isMore && !listing.next)) return;
    const { signal } = listing.control;
    listing.isLoading = true;
    try {
      const page = await get("sessions", { ...filters, match: "part", limit: PAGE, after: isMore ? listing.next : "" }, signal);
      if (signal.aborted) return;
      listing.next = page.next;
      setSessions((old) => (isMore ? merged(old ?? [], page.items) : page.items));
      setError(null);
    } catch (refused) {
      if (!signal.aborted) setError(refused);
    } finally {
      listing.isLoading = false;
    }
  }, [listing]);
  const refresh = useCallback(async () => {
    const { signal } = listing.control;
    const page = await get("sessions", { ...filters, match: "part", limit: PAGE }, signal);
    if (signal.aborted) return;
    if (filters.state) listing.next = page.next; // others have left the state since
    setSessions((old) => (filters.state ? page.items : merged(page.items, old ?? [])));
  }, [listing]);

  useEffect(() => {
    setSessions(null);
    setSelected(-1);
    setError(null);
    load(false);
    return () => listing.control.abort();
  }, [listing]);
  useEffect(() => {
    let timer = null;
    const soon = () => {
      timer ??= setTimeout(() => {
        timer = null;
        refresh().catch(() => {});
      }, MOST_REFRESHED_MS);
    };
    const stop = watch("events", undefined, { durable: (event) => MOVES.test(event.type) && soon() });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [refresh]);

  useEffect(() => {
    if (!isShown) return undefined;
    const control = new AbortController();
    get("usage", { by: "session" }, control.signal)
      .then((page) => setCosts(new Map(page.items.map((each) => [each.key, each]))), () => {});
    return () => control.abort();
  }, [isShown]);

  if (error) return html`<${Fault} error=${error} retry=${() => load(false)} />`;
  if (!sessions) return html`<${Waiting} />`;
  if (!sessions.length && isNarrowed(filters)) return html`<${Empty}>No session matches these filters.<//>`;
  if (!sessions.length) {
    return html`<${Empty}><p>No sessions here.</p><p class="small">Begin one above, or bring yours: <code>perdure import</code>.</p><//>`;
  }
  return html`<${Rows} label="Sessions" count=${sessions.length} height=${52} selected=${selected}
    onSelect=${setSelected} onOpen=${(n) => { location.hash = link(sessions[n].id); }} onEnd=${() => load(true)}
    row=${(n, style, isSelected) => html`<${Row} key=${sessions[n].id} n=${n} session=${sessions[n]} used=${costs.get(sessions[n].id)} style=${style} isSelected=${isSelected} />`} />`;
}

/** `first` and those of `second` that it does not have, newest activity first. */
function merged(first, second) {
  const known = new Set(first.map((each) => each.id));
  return [...first, ...second.filter((each) => !known.has(each.id))]
    .sort((a, b) => (a.updatedAt < b.updatedAt ? 1 : a.updatedAt > b.updatedAt ? -1 : 0));
}

function Row({ n, session, used, style, isSelected }) {
  const about = [session.agent, session.source, session.subject, session.folder].filter(Boolean).map(oneLine).join(" · ");
  return html`<a class="list-row session-row" id=${`row-${n}`} role="option" aria-selected=${isSelected} tabindex="-1"
      style=${style} href=${link(session.id)}>
    <span class="what"><span class="truncate">${oneLine(session.name) || "Untitled"}</span>
      <span class="truncate muted small">${about}</span></span>
    <span><${State} state=${session.state} /></span>
    <span class="wide truncate muted small mono">${oneLine(session.model)}</span>
    <span class="wide muted small">${count(session.messages)} messages</span>
    <span class="wide muted small cost" title=${used ? "Cost of its model calls" : ""}>${used ? money(used.costMicrocents) : ""}</span>
    <time class="wide muted small" title=${wholeTime(session.updatedAt)}>${shortTime(session.updatedAt)}</time>
  </a>`;
}

/** The query as it is typed: the last word may still grow. */
const asTyped = (text) => (/[^\s"*]{3}$/.test(text) && !text.includes('"') ? `${text}*` : text);

/** What was said, in the sessions that the filters select. */
function Hits({ text, filters }) {
  const { data, error, isLoading, reload } = useLoaded(
    (signal) => get("search", { ...filters, scope: isNarrowed(filters) ? filters.scope : "all", match: "part", q: asTyped(text), limit: 60 }, signal), [text, filters]);
  const [selected, setSelected] = useState(-1);
  const hits = useMemo(() => data?.items ?? [], [data]);
  const target = (hit) => link(hit.session, (hit.entryId ?? hit.about)?.split("/").at(-1));
  if (error) return html`<${Fault} error=${error} retry=${reload} />`;
  if (!data) return html`<${Waiting} what="Searching…" />`;
  if (!hits.length && !isLoading) return html`<${Empty}>Nothing said contains “${text}”${isNarrowed(filters) ? " in the sessions of these filters" : ""}.<//>`;
  const source = ({ role, isOnBranch, at }) => `${role}${isOnBranch ? "" : " · other branch"} · ${shortTime(at)}`;
  return html`<${Rows} label="Hits" count=${hits.length} height=${52} selected=${selected} onSelect=${setSelected}
    onOpen=${(n) => { location.hash = target(hits[n]); }}
    row=${(n, style, isSelected) => html`<a key=${n} class="list-row hit-row" id=${`row-${n}`} role="option" tabindex="-1"
        aria-selected=${isSelected} style=${style} href=${target(hits[n])}>
      <span class="what"><span class="truncate"><${Snippet} hit=${hits[n]} /></span>
        <span class="truncate muted small"><span class="narrow">${source(hits[n])} · </span>${oneLine(hits[n].name) || hits[n].session}</span></span>
      <span class="muted small wide">${source(hits[n])}</span>
    </a>`} />`;
}

function Snippet({ hit }) {
  const pieces = [];
  const letters = Array.from(hit.snippet);
  let from = 0;
  for (const [start, end] of hit.marks) {
    pieces.push(flat(letters.slice(from, start).join("")), html`<mark>${flat(letters.slice(start, end).join(""))}</mark>`);
    from = end;
  }
  return html`${pieces}${flat(letters.slice(from).join(""))}`;
}
