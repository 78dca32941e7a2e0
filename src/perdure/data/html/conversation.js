// The branch as blocks, drawn in pieces as they come near the screen: 10,000 entries stay quick.

const PIECE = 25; // blocks drawn at once
const column = document.getElementById("conversation");
let blocks = [];
let drawn = []; // per piece: its element, and whether it is filled
let placeOf = new Map(); // entry number -> index of its block
let isUnfolded = false;

const fold = (kind, head, fill, isOpen) => {
  const summary = el("summary", {}, ...head);
  const node = el("details", { class: `fold ${kind}` }, summary);
  let isFilled = false;
  const filled = () => {
    if (!isFilled && node.open) { isFilled = true; node.append(el("div", { class: "folded" }, fill())); }
  };
  node.addEventListener("toggle", filled);
  if (isOpen || isUnfolded) { node.open = true; filled(); }
  return node;
};
const glimpse = (text) => el("span", { class: "glimpse" }, text.slice(0, 240).replace(/\s+/g, " ").trim());

const medium = (piece) => {
  const about = [piece.name, piece.mime_type, sized(piece.byte_length)].filter(Boolean).join(" · ");
  const isImage = /^image\/(png|jpeg|gif|webp|avif)$/.test(piece.mime_type) && piece.data;
  return el("figure", { class: "medium" },
    isImage ? el("img", { src: `data:${piece.mime_type};base64,${piece.data}`, alt: about, loading: "lazy" }) : null,
    el("figcaption", {}, piece.data ? about : `${about} · not in this file`));
};

const said = (text) => {
  const node = el("div", { class: "prose" });
  node.append(prose(text));
  node.dir = "auto"; // after the text: else the browser looks for its direction at each piece of it
  return node;
};

const resultBody = (result) => {
  const out = document.createDocumentFragment();
  out.append(codeBlock(result.text || "(no output)", result.is_error ? "Failed" : "Result"));
  out.append(...(result.media || []).map(medium));
  return out;
};

const numbered = (line) => el("a", { class: "number", href: `#${anchorOf(line)}`, title: `entry ${line.id}` }, numberOf(line));

const call = (piece, answer) => {
  const result = answer ? answer.result : null;
  const state = !result ? ["open", "no result"] : result.is_error ? ["bad", result.outcome && result.outcome !== "ok" ? result.outcome : "failed"] : ["good", ""];
  const head = [
    el("span", { class: "tool-name" }, piece.name), glimpse(piece.brief),
    el("span", { class: `state ${state[0]}` }, [state[1], result && result.duration_ms ? lasted(result.duration_ms) : ""].filter(Boolean).join(" · ")),
    answer ? numbered(answer.line) : null,
  ].filter(Boolean);
  const node = fold(`tool ${state[0]}`, head, () => {
    const out = document.createDocumentFragment();
    out.append(codeBlock(piece.args, "Arguments", true));
    if (result) out.append(resultBody(result));
    return out;
  });
  if (answer && answer.isAnchor) node.id = anchorOf(answer.line);
  return node;
};

const drawPiece = (block) => (piece) => {
  if (piece.type === "text") return piece.text.trim() ? said(piece.text) : null;
  if (piece.type === "thinking") {
    const text = piece.is_redacted ? "The provider withheld this reasoning." : piece.text;
    return text.trim() ? fold("thinking", [el("span", { class: "tool-name" }, "Thinking"), glimpse(text)], () => said(text)) : null;
  }
  if (piece.type === "call") return call(piece, block.answers.get(piece));
  if (piece.type === "media") return medium(piece);
  if (piece.type === "result") {
    const head = [el("span", { class: "tool-name" }, piece.name || "Result"), glimpse(piece.text || "(no output)"),
      el("span", { class: `state ${piece.is_error ? "bad" : "good"}` }, piece.is_error ? "failed" : "")];
    return fold("tool", head, () => resultBody(piece));
  }
  return fold("tool", [el("span", { class: "tool-name" }, "Data"), glimpse(piece.text)], () => codeBlock(piece.text, "JSON"));
};

const switcher = (line) => {
  const all = siblings(line.number);
  if (all.length < 2) return null;
  const at = all.indexOf(line.number);
  const step = (by, text, word) => {
    const target = all[at + by];
    return el("button", {
      type: "button", class: "step", disabled: target === undefined, "aria-label": `${word} branch`,
      title: target === undefined ? null : `${word}: ${gist(lines[target]).slice(0, 120)}`,
      onclick: () => goTo(target, { leaf: newest[target], focus: true }),
    }, text);
  };
  return el("span", { class: "switch", role: "group", "aria-label": `Branch ${at + 1} of ${all.length}` },
    step(-1, "‹", "Previous"), el("span", {}, `${at + 1} / ${all.length}`), step(1, "›", "Next"));
};

const headOf = (line) => {
  const facts = [line.model && line.role === "assistant" ? line.model.replace(/^[^:]*:/, "") : "",
    line.tokens ? counted(line.tokens, "token") : "",
    line.stop_reason && !["stop", "tool_calls"].includes(line.stop_reason) ? line.stop_reason.replace("_", " ") : ""];
  return el("header", { class: "who" },
    numbered(line),
    el("span", { class: "name" }, nameOf(line)),
    el("a", { class: "time", href: `#${anchorOf(line)}`, title: `${dayOf(line.at)} ${timeOf(line.at)} · entry ${line.id}` }, timeOf(line.at)),
    line.label ? el("span", { class: "label" }, line.label) : null,
    switcher(line),
    el("span", { class: "facts" }, facts.filter(Boolean).join(" · ")));
};

const button = (text, onclick) => el("button", { type: "button", class: "inline-button", onclick }, text);

const compaction = (line) => {
  const hides = branch.summary === line.number ? branch.hidden.size : 0;
  const before = line.tokens_before ? `, ${counted(line.tokens_before, "token")} before it` : "";
  let note;
  if (line.is_undone) note = [`Taken back: it hides nothing${before}.`];
  else if (branch.summary !== line.number) note = ["A newer summary has taken its place."];
  else if (!hides) note = [`It hides nothing on this branch${before}.`];
  else note = [`The model sees this in place of ${counted(hides, "entry", "entries")} above${before}. `,
    button("Go to the first", () => goTo([...branch.hidden][0], { focus: true })),
    ...(line.first_kept !== undefined && line.first_kept !== null ? [" · ", button("first one kept", () => goTo(line.first_kept, { focus: true }))] : [])];
  return [el("p", { class: "hides" }, ...note),
    fold("thinking", [el("span", { class: "tool-name" }, "Summary"), glimpse(line.pieces.map(wordsOf).join(" "))],
      () => said(line.pieces.map(wordsOf).join("\n\n")), !line.is_undone)];
};

const SETTINGS = { model_change: "The model is now", thinking_change: "Thinking is now", state: "Not shown: the state" };

// An assistant that goes on after its tools is not announced again.
const goesOn = (block, before) =>
  before && before.line.role === "assistant" && block.line.role === "assistant" &&
  !block.line.label && siblings(block.line.number).length < 2;

const drawBlock = (block, before) => {
  const { line } = block;
  const kind = ["user", "assistant", "tool", "system", "context", "compaction", "branch_summary"].includes(line.role) ? line.role : "other";
  const classes = ["block", kind, branch.hidden.has(line.number) ? "unseen" : "", goesOn(block, before) ? "again" : "", line.is_undone ? "undone" : ""];
  const node = el("article", { class: classes.filter(Boolean).join(" "), id: anchorOf(line), "data-line": line.number, tabindex: "-1", "aria-label": `${nameOf(line)}, ${timeOf(line.at)}` });
  if (SETTINGS[line.role]) {
    node.classList.add("setting");
    node.append(numbered(line), el("p", {}, ` · ${SETTINGS[line.role]} `, el("b", {}, line.name || ""), ` · ${timeOf(line.at)} `), switcher(line) || "");
    return node;
  }
  node.append(headOf(line));
  const body = el("div", { class: "body" });
  if (line.role === "compaction") body.append(...compaction(line));
  else {
    if (kind === "other" && line.name) body.append(el("p", { class: "hides" }, line.name + (line.is_outside ? " · never sent to a model" : "")));
    if (line.role === "branch_summary") body.append(el("p", { class: "hides" }, "What happened on a branch that was left."));
    body.append(...block.pieces.map(drawPiece(block)).filter(Boolean));
  }
  if (line.error) body.append(el("p", { class: "error" }, line.error));
  if (!body.childNodes.length) body.append(el("p", { class: "hides" }, "(nothing said)"));
  node.append(body);
  return node;
};

const guess = (block) => 64 + block.pieces.reduce((sum, piece) =>
  sum + (piece.type === "text" ? 26 * Math.ceil(piece.text.length / 75 + 1) : 44), 0);

const fillPiece = (index) => {
  const piece = drawn[index];
  if (!piece || piece.isFilled) return;
  piece.isFilled = true;
  near.unobserve(piece.node);
  for (let n = index * PIECE; n < Math.min(blocks.length, (index + 1) * PIECE); n += 1) {
    const block = blocks[n];
    const before = blocks[n - 1];
    const day = dayOf(block.line.at);
    if (!before || dayOf(before.line.at) !== day) piece.node.append(el("p", { class: "day" }, day));
    if (branch.hidden.has(block.line.number) && !(before && branch.hidden.has(before.line.number))) {
      piece.node.append(el("p", { class: "hides begins" }, `The next ${counted(branch.hidden.size, "entry", "entries")} are hidden from the model by a `,
        button("summary further down", () => goTo(branch.summary, { focus: true })), "."));
    }
    piece.node.append(drawBlock(block, before));
  }
  piece.node.style.removeProperty("min-height");
};
const near = new IntersectionObserver((seen) => {
  for (const each of seen) if (each.isIntersecting) fillPiece(Number(each.target.dataset.piece));
}, { rootMargin: "1500px 0px" });

const drawBranch = () => {
  near.disconnect();
  blocks = blocksOf(branch.path);
  placeOf = new Map();
  blocks.forEach((block, n) => block.members.forEach((number) => { if (!placeOf.has(number) || number === block.line.number) placeOf.set(number, n); }));
  drawn = [];
  column.replaceChildren();
  for (let start = 0; start < blocks.length; start += PIECE) {
    const node = el("div", { class: "piece", "data-piece": drawn.length });
    node.style.setProperty("min-height", `${blocks.slice(start, start + PIECE).reduce((sum, block) => sum + guess(block), 0)}px`);
    drawn.push({ node, isFilled: false });
    column.append(node);
    near.observe(node);
  }
  if (!blocks.length) column.append(el("p", { class: "hides" }, "Nothing was said on this branch."));
  fillPiece(0);
};

const fillAll = () => drawn.forEach((_, index) => fillPiece(index));

let settling = 0; // the newest wish to scroll; older ones give way
let settledAt = -1e9; // when the page last scrolled by itself

// Bring an entry to the top. What is filled above it while it comes may push it: look again.
const reveal = (number, { focus = false } = {}) => {
  const place = placeOf.get(number);
  if (place === undefined) return;
  const index = Math.floor(place / PIECE);
  [index - 1, index, index + 1].forEach(fillPiece);
  const block = document.getElementById(anchorOf(blocks[place].line));
  if (!block) return;
  const node = document.getElementById(anchorOf(lines[number])) || block;
  if (node !== block) node.open = true; // the call that has this result
  settling += 1;
  const own = settling;
  const settle = (tries) => {
    if (own !== settling) return;
    node.scrollIntoView({ block: "start" });
    settledAt = performance.now();
    if (tries) requestAnimationFrame(() => settle(tries - 1));
  };
  settle(3);
  markCurrent(place);
  if (focus) block.focus({ preventScroll: true });
};

let current = 0; // index of the block that the keys speak of
const markCurrent = (place) => {
  current = place;
  column.querySelector(".current")?.classList.remove("current");
  const block = blocks[place];
  if (!block) return;
  document.getElementById(anchorOf(block.line))?.classList.add("current");
  showInTree(block.line.number);
};

// Show entry `number`, on the branch that is shown if it is on it, else on its newest one.
const goTo = (number, { leaf = null, focus = false } = {}) => {
  if (number === undefined || number === null || !lines[number]) return;
  if (leaf !== null || !branch.on.has(number)) {
    standAt(leaf === null ? newest[number] : leaf);
    drawBranch();
    drawRows();
    drawFoot();
  }
  reveal(number, { focus });
  const hash = `#${anchorOf(lines[number])}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
};
