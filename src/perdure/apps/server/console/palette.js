// The command palette, and the list of keys.
import { get } from "./api.js";
import { oneLine } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { useModal, useSettled } from "./parts.js";

export function Palette({ views, close }) {
  const box = useModal(close);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const [found, setFound] = useState({ query: "", items: [] });
  const settled = useSettled(text, 100);
  useEffect(() => {
    const control = new AbortController();
    get("sessions", { query: settled, limit: 12, scope: "all" }, control.signal)
      .then((page) => setFound({ query: settled, items: page.items }), () => {});
    return () => control.abort();
  }, [settled]);
  const [flows, setFlows] = useState([]);
  useEffect(() => { get("flows").then((page) => setFlows(page.items), () => {}); }, []);
  const wanted = text.toLowerCase();
  // Until the server has answered, Enter must not open what was found before.
  const sessions = found.query === text ? found.items : found.items.filter((each) => each.name.toLowerCase().includes(wanted));
  const rows = [
    ...views.filter(([, title]) => title.toLowerCase().includes(wanted))
      .map(([name, title]) => ({ href: `#/${name}`, title, kind: "view" })),
    ...flows.filter((each) => each.name.toLowerCase().includes(wanted)).slice(0, 6)
      .map((each) => ({ href: `#/flows/${encodeURIComponent(each.id)}`, title: oneLine(each.name), kind: "flow" })),
    ...sessions.map((each) => ({ href: `#/sessions/${encodeURIComponent(each.id)}`, title: oneLine(each.name) || each.id, kind: each.state })),
    ...(wanted ? [{ href: `#/sessions?q=${encodeURIComponent(text)}`, title: `Search for “${text}”`, kind: "search" }] : []),
  ];
  const at = Math.min(chosen, rows.length - 1);
  const open = (row) => {
    close();
    if (row) location.hash = row.href;
  };
  function onKeyDown(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setChosen((at + step + rows.length) % rows.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(rows[at]);
    }
  }
  return html`<dialog class="palette" ref=${box} aria-label="Go to">
    <input autofocus placeholder="Go to a view, a flow or a session" aria-label="Go to a view, a flow or a session" role="combobox" aria-expanded="true" aria-controls="palette-rows"
      value=${text} onInput=${(e) => { setText(e.target.value); setChosen(0); }} onKeyDown=${onKeyDown} />
    <ul id="palette-rows" role="listbox">${rows.map((row, n) => html`<li role="option" aria-selected=${n === at} onClick=${() => open(row)}>
      <span class="truncate">${row.title}</span><span class="muted small">${row.kind}</span></li>`)}</ul>
  </dialog>`;
}

const KEYS = [
  ["Ctrl K", "go to a view, a flow or a session"], ["/", "search everything said"],
  ["g s · g f · g i · g m · g u · g t", "sessions, flows, inbox, memory, usage, store"],
  ["n · c · x", "new session · write a message · stop the turn"],
  ["l", "go to the list, or to the tree"], ["b · f · d", "in the tree: branch here, fork here, compare"],
  ["j k, arrows, Enter", "move in a list, open"], ["1 2 3, or the first letter", "answer the question in focus"],
  ["arrows, Enter, o · + − 0", "in a graph: go to a node, its feed, its session · size"],
  ["Enter · Shift Enter", "send a message · a new line"], ["Esc", "leave a field or a dialog, then the search"], ["?", "this list"],
];

export function Help({ close }) {
  const box = useModal(close);
  return html`<dialog ref=${box} aria-label="Keys"><div class="pad stack"><h1>Keys</h1>
    <dl class="facts">${KEYS.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
    <div><button class="primary" autofocus onClick=${() => box.current.close()}>Close</button></div></div></dialog>`;
}
