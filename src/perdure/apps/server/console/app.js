// The shell: sign-in, navigation, the view of the address, keys that work everywhere.
import { get, loadRole, onSignedOut, post, watch } from "./api.js";
import { Cluster } from "./cluster.js";
import { Conversation } from "./conversation.js";
import { Flow } from "./flows/flow.js";
import { Flows } from "./flows/flows.js";
import { useReader } from "./flows/reader.js";
import { html, render, useEffect, useState } from "./html.js";
import { Inbox } from "./inbox.js";
import { Memory } from "./memory.js";
import { Help, Palette } from "./palette.js";
import { Toast, Waiting, attempt } from "./parts.js";
import { Sessions } from "./sessions.js";
import { SignIn } from "./sign_in.js";
import { Store } from "./store.js";
import { Usage } from "./usage.js";

const VIEWS = [
  ["sessions", "Sessions", "s"],
  ["flows", "Flows", "f"],
  ["inbox", "Inbox", "i"],
  ["memory", "Memory", "m"],
  ["usage", "Usage", "u"],
  ["store", "Store", "t"],
  ["cluster", "Cluster", "c"],
];

/** The parts of the address after `#/`, and its query. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

export const go = (...parts) => { location.hash = `/${parts.map(encodeURIComponent).join("/")}`; };

function themed(theme) {
  const isDark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
}

function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    themed(theme);
    localStorage.setItem("theme", theme);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const change = () => themed(theme);
    dark.addEventListener("change", change);
    return () => dark.removeEventListener("change", change);
  }, [theme]);
  return [theme, () => setTheme({ auto: "dark", dark: "light", light: "auto" }[theme])];
}

/** The questions that wait, read one at a time: an older answer that comes late must not win. */
function useWaiting(isSignedIn) {
  const [waiting, setWaiting] = useState([]);
  const [version, setVersion] = useState(0);
  useReader(async (isOver) => {
    if (!isSignedIn) return;
    const page = await get("inbox");
    if (!isOver()) setWaiting(page.items);
  }, () => {}, [isSignedIn], version);
  useEffect(() => {
    if (!isSignedIn) return undefined;
    const load = () => setVersion((n) => n + 1);
    return watch("events", undefined, {
      durable: (event) => /^(inbox:|agent:approval|session:turn_|flow:)/.test(event.type) && load(),
      state: (state) => state === "live" && load(),
    });
  }, [isSignedIn]);
  return waiting;
}

function App() {
  const [at, setAt] = useState(place);
  const [isSignedIn, setSignedIn] = useState(null);
  const [codeError, setCodeError] = useState(null);
  const [open, setOpen] = useState(null);
  const [theme, nextTheme] = useTheme();
  const waiting = useWaiting(isSignedIn === true);

  useEffect(() => {
    const moved = () => setAt(place());
    addEventListener("hashchange", moved);
    const end = onSignedOut(() => setSignedIn(false));
    const code = /^#code=([0-9a-f]+)$/.exec(location.hash)?.[1];
    if (code) history.replaceState(null, "", "#/sessions");
    // An address that was used is no reason to sign out: this browser may have used it.
    const start = code ? post("sign-in", { code }).then(loadRole, (error) => loadRole().catch(() => { setCodeError(error); throw error; })) : loadRole();
    start.then(() => { setAt(place()); setSignedIn(true); }, (error) => setSignedIn(error.status === 0 ? null : false));
    return () => {
      removeEventListener("hashchange", moved);
      end();
    };
  }, []);
  useKeys(setOpen);

  if (isSignedIn === null) return html`<${Waiting} />`;
  if (!isSignedIn) return html`<${SignIn} codeError=${codeError} onSignedIn=${() => { setCodeError(null); setSignedIn(true); }} />`;
  const view = at.parts[0] ?? "sessions";
  return html`<div class="shell">
    <nav class="rail" aria-label="Views">
      <span class="brand">perdure</span>
      ${VIEWS.map(([name, title]) => html`<a href=${`#/${name}`} aria-current=${view === name ? "page" : undefined}>
        ${title}${name === "inbox" && waiting.length > 0 && html`<span class="badge" aria-label=${`${waiting.length} waiting`}>${waiting.length}</span>`}
      </a>`)}
      <div class="end">
        <button class="quiet" onClick=${() => setOpen("palette")} title="Ctrl K">Go to…</button>
        <button class="quiet" onClick=${nextTheme}>Theme: ${theme}</button>
        <button class="quiet" onClick=${() => attempt(() => post("sign-out")).then(() => setSignedIn(false))}>Sign out</button>
      </div>
    </nav>
    <main class="view"><${View} view=${view} at=${at} waiting=${waiting} /></main>
    ${open === "palette" && html`<${Palette} views=${VIEWS} close=${() => setOpen(null)} />`}
    ${open === "help" && html`<${Help} close=${() => setOpen(null)} />`}
    <${Toast} />
  </div>`;
}

function View({ view, at, waiting }) {
  useEffect(() => { document.title = `${view} · perdure`; }, [view]);
  if (view === "sessions" && at.parts[1]) {
    return html`<${Conversation} key=${at.parts[1]} id=${at.parts[1]} target=${at.parts[2]} side=${at.query.get("side")} call=${at.query.get("call")} />`;
  }
  if (view === "flows" && at.parts[1]) {
    return html`<${Flow} key=${at.parts[1]} id=${at.parts[1]} role=${at.parts[2]} item=${at.parts[3]} waiting=${waiting} />`;
  }
  if (view === "flows") return html`<${Flows} />`;
  if (view === "inbox") return html`<${Inbox} waiting=${waiting} />`;
  if (view === "memory") return html`<${Memory} tab=${at.query.get("tab")} question=${at.query.get("question") ?? ""} />`;
  if (view === "usage") return html`<${Usage} />`;
  if (view === "store") return html`<${Store} />`;
  if (view === "cluster") return html`<${Cluster} />`;
  return html`<${Sessions} query=${at.query.get("q") ?? ""} />`;
}

/** Presses or focuses the element whose `data-key` is the key of `event`. */
function press(event) {
  const found = document.querySelector(`[data-key="${CSS.escape(event.key)}"]:not(:disabled)`);
  if (!found) return;
  event.preventDefault();
  if (found.matches("button, a")) found.click();
  else found.focus();
}

/** `g` and a letter go to a view, `?` shows the keys, Ctrl K goes anywhere. */
function useKeys(setOpen) {
  useEffect(() => {
    let isGoing = false;
    function pressed(event) {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setOpen("palette");
        return;
      }
      const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
      if (isTyping && event.key === "Escape" && !event.target.closest("dialog")) event.target.blur();
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      const view = isGoing && VIEWS.find(([, , key]) => key === event.key);
      isGoing = event.key === "g";
      if (view) go(view[0]);
      else if (event.key === "?") setOpen("help");
      else press(event);
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

render(html`<${App} />`, document.getElementById("app"));
