// The session as data: the tree, the branch that is shown, what on it no model sees any more.

const data = JSON.parse(document.getElementById("data").textContent);
const lines = data.lines.map((line) => ({ pieces: [], parent: null, ...line }));
const children = new Map(); // parent number, or null for the roots -> numbers
for (const line of lines) {
  if (!children.has(line.parent)) children.set(line.parent, []);
  children.get(line.parent).push(line.number);
}
// The number of an entry as commands print it. A fork shares entries of other sessions: their
// numbers may repeat, so their anchors contain the whole id.
const isOwn = (line) => line.id.slice(0, line.id.lastIndexOf("/")) === data.facts.id;
const seqOf = (line) => line.id.slice(line.id.lastIndexOf("/") + 1);
const numberOf = (line) => (isOwn(line) ? seqOf(line) : `↑${seqOf(line)}`);
const anchorOf = (line) => `e${isOwn(line) ? seqOf(line) : line.id}`;
const anchored = new Map(lines.map((line) => [anchorOf(line), line.number])); // anchor -> index in lines
const newest = lines.map((line) => line.number); // the newest entry below each: a branch's end
for (let n = lines.length - 1; n >= 0; n -= 1) {
  const above = lines[n].parent;
  if (above !== null && newest[above] < newest[n]) newest[above] = newest[n];
}

const NAMES = {
  user: "User", assistant: "Assistant", tool: "Tool", system: "System", context: "Context",
  compaction: "Summary", branch_summary: "Left branch", model_change: "Model",
  thinking_change: "Thinking level", custom: "Extension", custom_message: "Note", opaque: "Unreadable", state: "State",
};
const nameOf = (line) => NAMES[line.role] || line.role;

const wordsOf = (piece) => {
  if (piece.type === "call") return `${piece.name} ${piece.args}`;
  if (piece.type === "media") return piece.name || piece.mime_type;
  return piece.text || "";
};
const told = new Map();
const textOf = (line) => { // all its words, for the search
  if (!told.has(line.number)) {
    const said = [line.label, line.name, ...line.pieces.map(wordsOf), line.error].filter(Boolean).join("\n");
    told.set(line.number, said);
  }
  return told.get(line.number);
};
const gist = (line) => { // its beginning, for a row of the tree
  if (line.role === "model_change" || line.role === "thinking_change") return line.name || "";
  const text = line.pieces.find((piece) => piece.type === "text" && piece.text.trim());
  if (text) return text.text.slice(0, 200).replace(/[`*#]+/g, "").replace(/\s+/g, " ").trim();
  const call = line.pieces.find((piece) => piece.type === "call");
  if (call) return `→ ${call.name} ${call.brief}`;
  const result = line.pieces.find((piece) => piece.type === "result");
  if (result) return `${result.name || "result"}: ${result.text.slice(0, 200).replace(/\s+/g, " ").trim() || "(no output)"}`;
  return line.error || line.name || (line.pieces[0] ? wordsOf(line.pieces[0]).slice(0, 120).replace(/\s+/g, " ") : "");
};
const isTalk = (line) =>
  line.label || line.error || ["user", "compaction", "branch_summary", "system"].includes(line.role) ||
  (line.role === "assistant" && line.pieces.some((piece) => piece.type === "text" && piece.text.trim())) ||
  (line.role === "custom_message" && !line.is_outside);

const branch = { leaf: null, path: [], on: new Set(), hidden: new Set(), summary: null };

const pathTo = (leaf) => {
  const path = [];
  for (let n = leaf; n !== null && n !== undefined; n = lines[n].parent) path.push(n);
  return path.reverse();
};

// Stand at `leaf`; the newest compaction that holds on its branch hides what is before it.
const standAt = (leaf) => {
  branch.leaf = leaf;
  branch.path = leaf === null || leaf === undefined ? [] : pathTo(leaf);
  branch.on = new Set(branch.path);
  branch.hidden = new Set();
  branch.summary = null;
  for (let n = branch.path.length - 1; n >= 0 && branch.summary === null; n -= 1) {
    const line = lines[branch.path[n]];
    if (line.role !== "compaction" || line.is_undone) continue;
    branch.summary = line.number;
    const kept = branch.path.slice(0, n).indexOf(line.first_kept);
    branch.hidden = new Set(branch.path.slice(0, kept < 0 ? n : kept));
  }
};

const siblings = (number) => children.get(lines[number].parent) || [number];

// What is shown: lines of the branch, each with the results of its calls. A result that answers
// no call before it stands by itself.
const blocksOf = (path) => {
  const blocks = [];
  const open = new Map();
  for (const number of path) {
    const line = lines[number];
    const block = { line, answers: new Map(), members: [number] };
    let first = null; // the first answer of this entry in the block of its call
    const rest = line.role === "tool" ? line.pieces.filter((piece) => {
      const asked = piece.type === "result" ? open.get(piece.call_id) : null;
      if (!asked) return true;
      const answer = { result: piece, line, isAnchor: false };
      first = first || answer;
      asked.block.answers.set(asked.call, answer);
      asked.block.members.push(number);
      open.delete(piece.call_id);
      return false;
    }) : line.pieces;
    for (const piece of line.pieces) if (piece.type === "call") open.set(piece.id, { block, call: piece });
    if (line.role !== "tool" || rest.length || !line.pieces.length || siblings(number).length > 1 || line.label) {
      block.pieces = rest;
      blocks.push(block);
    } else if (first) first.isAnchor = true;
  }
  return blocks;
};
