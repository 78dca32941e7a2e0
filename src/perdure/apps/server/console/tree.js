// The tree of a session: every branch, labels, compactions; branch, fork or compare from any entry.
import { get, post } from "./api.js";
import { Removed } from "./compaction.js";
import { oneLine, seqOf } from "./format.js";
import { html, useEffect, useMemo, useState } from "./html.js";
import { Rows } from "./list.js";
import { Still } from "./message.js";
import { Fault, Waiting, attempt, needing, useLoaded, useModal } from "./parts.js";

const NAMES = { user: "you", assistant: "agent", tool: "tool", compaction: "compaction", branch_summary: "summary", model_change: "model", thinking_change: "thinking" };
const INDENT = 14;

/** The newest entry below `entry`, itself if nothing follows. */
export function newestBelow(rows, entry) {
  const inside = new Set([entry]);
  let newest = entry;
  for (const row of rows) {
    if (row.parentId !== null && inside.has(row.parentId)) {
      inside.add(row.id);
      newest = row.id;
    }
  }
  return newest;
}

/** The rows in the order of the tree, each with its depth: only branches are indented. */
export function outline(rows) {
  const known = new Set(rows.map((row) => row.id));
  const below = new Map();
  const roots = [];
  for (const row of rows) {
    const parent = row.parentId !== null && known.has(row.parentId) ? row.parentId : null;
    if (parent === null) roots.push(row);
    else if (below.has(parent)) below.get(parent).push(row);
    else below.set(parent, [row]);
  }
  const found = [];
  const open = roots.map((row) => ({ row, depth: 0 })).reverse();
  while (open.length) {
    const { row, depth } = open.pop();
    const children = below.get(row.id) ?? [];
    found.push({ ...row, depth, branches: children.length });
    const deeper = children.length > 1 ? depth + 1 : depth;
    for (const child of [...children].reverse()) open.push({ row: child, depth: deeper });
  }
  return found;
}

export function Tree({ path, version, leaf, branch, fork, chosen, setChosen }) {
  const [last, setLast] = useState(400);
  const { data, error, reload } = useLoaded((signal) => get(`${path}/tree`, { last }, signal), [path, version, last]);
  const [hasTools, setTools] = useState(false);
  const [compared, setCompared] = useState(null);
  const [removed, setRemoved] = useState(null);
  const rows = useMemo(() => outline(data?.items ?? []).filter((row) => hasTools || row.role !== "tool"), [data, hasTools]);
  const selected = rows.findIndex((row) => row.id === chosen);
  useEffect(() => { if (chosen === null && leaf) setChosen(leaf); }, [leaf]);
  if (error && !data) return html`<${Fault} error=${error} retry=${reload} />`;
  if (!data) return html`<${Waiting} />`;
  const row = rows[selected];
  const compare = () => attempt(async () => setCompared(await get(`${path}/diff`, { a: leaf, b: newestBelow(data.items, row.id) })));
  return html`<div class="tabs">
      <button class="quiet" aria-pressed=${hasTools} onClick=${() => setTools(!hasTools)}>Tool results</button>
      <button class="quiet" data-key="b" disabled=${!row || row.id === leaf} ...${needing()} onClick=${() => branch(row.id)}>Branch here</button>
      <button class="quiet" data-key="f" disabled=${!row} ...${needing()} onClick=${() => fork(row.id)}>Fork here</button>
      <button class="quiet" data-key="d" disabled=${!row || row.isOnBranch} onClick=${compare}>Compare</button>
      ${row?.kind === "compaction" && html`<button class="quiet" ...${needing()} onClick=${() => attempt(() => post(`${path}/uncompact`, { compaction: row.id }), "What it hid is back")}>Undo compaction</button>
        <button class="quiet" onClick=${() => setRemoved(row.id)}>What it removed</button>`}
      ${data.hasMore && html`<button class="quiet" onClick=${() => setLast(last * 5)}>Older</button>`}
    </div>
    ${compared && html`<${Compared} found=${compared} path=${path} close=${() => setCompared(null)} />`}
    ${removed && html`<${RemovedBy} id=${removed} path=${path} close=${() => setRemoved(null)} />`}
    <${Rows} role="tree" label="Tree" count=${rows.length} height=${26} selected=${selected} onSelect=${(n) => setChosen(rows[n].id)}
      onOpen=${(n) => { location.hash = `#/${path}/${seqOf(rows[n].id)}`; }}
      row=${(n, style, isSelected) => html`<${Row} key=${rows[n].id} n=${n} row=${rows[n]} style=${style} isSelected=${isSelected} isLeaf=${rows[n].id === leaf}
        path=${path} choose=${() => setChosen(rows[n].id)} />`} />`;
}

function Row({ n, row, style, isSelected, isLeaf, path, choose }) {
  const who = NAMES[row.role] ?? NAMES[row.kind] ?? row.kind;
  const indent = { ...style, paddingLeft: `${8 + Math.min(row.depth, 16) * INDENT}px` };
  return html`<div id=${`row-${n}`} class=${`list-row tree-row ${row.isOnBranch ? "" : "off"} ${isLeaf ? "leaf" : ""}`} style=${indent}
      role="treeitem" aria-level=${row.depth + 1} aria-selected=${isSelected} onClick=${choose}
      onDblClick=${() => { location.hash = `#/${path}/${seqOf(row.id)}`; }}>
    <span class="truncate"><span class="who">${who}</span>${oneLine(row.text)}</span>
    <span class="small">${row.isPinned ? "pinned " : ""}${row.branches > 1 ? `${row.branches} branches ` : ""}${row.label && html`<span class="label">${oneLine(row.label)}</span>`}</span>
  </div>`;
}

function RemovedBy({ id, path, close }) {
  const box = useModal(close);
  return html`<dialog class="whole" ref=${box} aria-label="What a compaction removed"><div class="pad stack">
    <div class="row"><h1 class="grow">What the compaction removed</h1><button autofocus onClick=${() => box.current.close()}>Close</button></div>
    <${Removed} id=${id} path=${path} /></div></dialog>`;
}

function Compared({ found, path, close }) {
  const box = useModal(close);
  const side = (title, messages) => html`<section class="stack" aria-label=${title}><h2>${title}</h2>
    <${Still} messages=${messages} path=${path} empty="It has no message after the shared ones." /></section>`;
  return html`<dialog class="whole" ref=${box} aria-label="Two branches"><div class="pad stack">
    <div class="row"><h1 class="grow">Two branches</h1><button autofocus onClick=${() => box.current.close()}>Close</button></div>
    <div class="pair">${side("Active branch", found.a)}${side("Chosen branch", found.b)}</div></div></dialog>`;
}
