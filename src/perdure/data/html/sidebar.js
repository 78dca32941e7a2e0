// The tree, and the hits of a search in its place: rows of one height, only those in sight drawn.

const ROW = 30;
const HIT = 58;
const DEEPEST_ROW = 8;
const rowBox = document.getElementById("rows");
const findBox = document.getElementById("find");
const everyBox = document.getElementById("every");
const countBox = document.getElementById("count");
const canvas = el("div", { class: "canvas" });
rowBox.append(canvas);

let rows = []; // {line, depth} of the tree, {line, snippet} of a search
let rowOf = new Map(); // entry number -> index of its row in the tree
let shown = -1; // the entry of the row that stands for what is on the screen
let chosen = -1; // the row that the keys move
let terms = [];
const isFinding = () => terms.length > 0;
const rowHeight = () => (isFinding() ? HIT : ROW);

// Depth first, oldest branch first. Depth grows only where a branch begins.
const treeRows = () => {
  const out = [];
  const stack = (children.get(null) || []).map((number) => ({ number, depth: 0 })).reverse();
  while (stack.length) {
    const { number, depth } = stack.pop();
    const line = lines[number];
    const below = children.get(number) || [];
    if (everyBox.checked || isTalk(line) || siblings(number).length > 1) out.push({ line, depth });
    for (let n = below.length - 1; n >= 0; n -= 1) {
      stack.push({ number: below[n], depth: Math.min(DEEPEST_ROW, depth + (below.length > 1 ? 1 : 0)) });
    }
  }
  return out;
};

const snippet = (line) => {
  const text = textOf(line);
  const at = Math.max(0, text.toLowerCase().indexOf(terms[0]));
  return (at > 30 ? "…" : "") + text.slice(Math.max(0, at - 30), at + 170).replace(/\s+/g, " ");
};
const found = () => lines.filter((line) => {
  const text = textOf(line).toLowerCase();
  return terms.every((term) => text.includes(term));
}).map((line) => ({ line }));

// Words, and "several words" as one.
const termsOf = (query) =>
  [...query.toLowerCase().matchAll(/"([^"]+)"|(\S+)/g)].map((each) => (each[1] || each[2]).replace(/^"/, "")).filter(Boolean);

const marked = (text) => {
  const out = document.createDocumentFragment();
  const lower = text.toLowerCase();
  let at = 0;
  while (at < text.length) {
    const next = terms.map((term) => [lower.indexOf(term, at), term.length]).filter(([start]) => start >= 0).sort((a, b) => a[0] - b[0])[0];
    if (!next || lower.length !== text.length) break;
    out.append(text.slice(at, next[0]), el("mark", {}, text.slice(next[0], next[0] + next[1])));
    at = next[0] + next[1];
  }
  out.append(text.slice(at));
  return out;
};

const drawRow = (row, index) => {
  const { line } = row;
  const isShown = line.number === shown;
  const kind = ["user", "assistant", "tool", "compaction", "branch_summary"].includes(line.role) ? line.role : "other";
  const classes = ["row", kind, isFinding() ? "hit" : "", branch.on.has(line.number) ? "on" : "off",
    isShown ? "shown" : "", index === chosen ? "chosen" : "", branch.hidden.has(line.number) ? "unseen" : ""];
  const node = el("div", {
    class: classes.filter(Boolean).join(" "), id: `row${index}`, role: "treeitem", "aria-level": (row.depth || 0) + 1,
    "aria-posinset": index + 1, "aria-setsize": rows.length, "aria-selected": String(isShown),
    onclick: () => { chosen = index; open(row); },
  },
    el("span", { class: "dot", "aria-hidden": "true" }),
    el("span", { class: "row-name" }, nameOf(line)),
    line.label && !isFinding() ? el("span", { class: "label" }, line.label) : null,
    el("span", { class: "row-text", dir: "auto" }, isFinding() ? marked(snippet(line)) : gist(line) || "(nothing said)"));
  node.style.setProperty("top", `${index * rowHeight()}px`);
  node.style.setProperty("--depth", row.depth || 0);
  return node;
};

const open = (row) => {
  document.body.classList.remove("side-open");
  syncSide();
  goTo(row.line.number);
};

const drawVisible = () => {
  const height = rowHeight();
  const first = Math.max(0, Math.floor(rowBox.scrollTop / height) - 6);
  const last = Math.min(rows.length, Math.ceil((rowBox.scrollTop + rowBox.clientHeight) / height) + 6);
  canvas.style.setProperty("height", `${rows.length * height}px`);
  canvas.replaceChildren(...rows.slice(first, last).map((row, n) => drawRow(row, first + n)));
  if (chosen >= 0) rowBox.setAttribute("aria-activedescendant", `row${chosen}`);
  else rowBox.removeAttribute("aria-activedescendant");
};

const drawRows = () => {
  rows = isFinding() ? found() : treeRows();
  rowOf = new Map(rows.map((row, n) => [row.line.number, n]));
  const ends = lines.filter((line) => !children.has(line.number)).length;
  if (isFinding()) countBox.textContent = rows.length ? counted(rows.length, "hit") : "Nothing found";
  else countBox.textContent = `${counted(lines.length, "entry", "entries")}, ${counted(ends, "branch", "branches")}`;
  everyBox.parentElement.hidden = isFinding();
  drawVisible();
};

const bringRow = (index) => {
  const top = index * rowHeight();
  if (top < rowBox.scrollTop || top + rowHeight() > rowBox.scrollTop + rowBox.clientHeight) {
    rowBox.scrollTop = top - rowBox.clientHeight / 3;
  }
};

const showInTree = (number) => {
  shown = number;
  if (!isFinding()) { // an entry that has no row is stood for by the one above it
    while (shown !== null && !rowOf.has(shown)) shown = lines[shown].parent;
    if (shown !== null) { chosen = rowOf.get(shown); bringRow(chosen); }
  }
  drawVisible();
};

const move = (by) => {
  chosen = Math.max(0, Math.min(rows.length - 1, chosen + by));
  bringRow(chosen);
  drawVisible();
};

rowBox.addEventListener("scroll", () => requestAnimationFrame(drawVisible), { passive: true });
rowBox.addEventListener("keydown", (event) => {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -rows.length, End: rows.length };
  if (event.key in steps) move(steps[event.key]);
  else if ((event.key === "Enter" || event.key === " ") && rows[chosen]) open(rows[chosen]);
  else return;
  event.preventDefault();
  event.stopPropagation();
});
everyBox.addEventListener("change", () => { chosen = -1; drawRows(); });

let waiting = 0;
const search = () => {
  terms = termsOf(findBox.value);
  chosen = -1;
  rowBox.scrollTop = 0;
  drawRows();
};
findBox.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
findBox.addEventListener("keydown", (event) => {
  if (event.key === "Enter" || event.key === "ArrowDown") {
    clearTimeout(waiting);
    if (termsOf(findBox.value).join(" ") !== terms.join(" ")) search();
    if (!rows.length) return;
    chosen = (chosen + (event.shiftKey ? rows.length - 1 : 1)) % rows.length;
    bringRow(chosen);
    goTo(rows[chosen].line.number);
    event.preventDefault();
  } else if (event.key === "Escape") {
    findBox.value = "";
    search();
    findBox.blur();
  }
});
