// The page around the conversation: its heading, theme, keys, and where it begins.

const facts = data.facts;
const about = document.getElementById("about");
const title = facts.title || "Untitled session";
document.getElementById("bar-title").textContent = title;

const drawAbout = () => {
  const rowsOf = [
    ["Begun", `${dayOf(facts.created_at)}, ${timeOf(facts.created_at)}`],
    ["Folder", facts.cwd],
    [(facts.models || []).length > 1 ? "Models" : "Model", (facts.models || []).join(", ")],
    ["Size", [facts.messages ? counted(facts.messages, "message") : "", facts.tokens ? counted(facts.tokens, "token") : "", facts.cost_microcents ? dollars(facts.cost_microcents) : ""].filter(Boolean).join(" · ")],
    ["Session", facts.id],
    ["Replaced", Object.entries(facts.redacted || {}).map(([kind, count]) => counted(count, kind.replace(/-/g, " "))).join(", ")],
  ];
  about.append(el("h1", { dir: "auto" }, title),
    el("dl", {}, ...rowsOf.filter(([, text]) => text).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))));
  if (facts.system_prompt) {
    about.append(fold("thinking", [el("span", { class: "tool-name" }, "Instructions"), glimpse(facts.system_prompt)], () => said(facts.system_prompt)));
  }
};

const drawFoot = () => {
  const others = lines.length - branch.path.length;
  const foot = document.getElementById("foot");
  foot.replaceChildren(el("p", {}, others
    ? `The end of this branch. ${counted(others, "entry is", "entries are")} on other branches: the tree has them.`
    : "The end of the conversation."), el("p", {}, "Written by perdure. This page is one file and loads nothing from anywhere."));
};

const THEMES = ["auto", "light", "dark"];
const themeButton = document.getElementById("theme");
const kept = (write) => { try { return write ? localStorage.setItem("perdure-theme", write) : localStorage.getItem("perdure-theme"); } catch { return null; } };
const useTheme = (name) => {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  themeButton.textContent = name[0].toUpperCase() + name.slice(1);
  themeButton.setAttribute("aria-label", `Theme: ${name}`);
};
const nextTheme = () => {
  const now = document.documentElement.dataset.theme || "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  useTheme(next);
  kept(next);
};
themeButton.addEventListener("click", nextTheme);
useTheme(THEMES.includes(kept()) ? kept() : "auto");

const unfoldButton = document.getElementById("unfold");
const unfoldAll = () => {
  isUnfolded = !isUnfolded;
  unfoldButton.setAttribute("aria-pressed", String(isUnfolded));
  unfoldButton.textContent = isUnfolded ? "Fold" : "Unfold";
  const place = current;
  column.querySelectorAll("details").forEach((each) => { each.open = isUnfolded; });
  if (blocks[place]) reveal(blocks[place].line.number);
};
unfoldButton.addEventListener("click", unfoldAll);

const menu = document.getElementById("menu");
const shade = document.getElementById("shade");
const isNarrow = () => matchMedia("(max-width: 60rem)").matches;
const isSideShown = () => (isNarrow() ? document.body.classList.contains("side-open") : !document.body.classList.contains("side-closed"));
const syncSide = () => {
  menu.setAttribute("aria-expanded", String(isSideShown()));
  shade.hidden = !(isNarrow() && isSideShown());
  document.getElementById("side").inert = !isSideShown();
};
const toggleSide = () => {
  document.body.classList.toggle(isNarrow() ? "side-open" : "side-closed");
  syncSide();
  drawVisible();
};
menu.addEventListener("click", toggleSide);
shade.addEventListener("click", toggleSide);
addEventListener("resize", () => { syncSide(); drawVisible(); });

const keys = document.getElementById("keys");
document.getElementById("help").addEventListener("click", () => keys.showModal());

const step = (by) => {
  const next = Math.max(0, Math.min(blocks.length - 1, current + by));
  if (blocks[next]) reveal(blocks[next].line.number, { focus: true });
};
const turnBranch = (by) => {
  const block = blocks[current];
  if (!block) return;
  const all = siblings(block.line.number);
  const target = all[all.indexOf(block.line.number) + by];
  if (target !== undefined) goTo(target, { leaf: newest[target], focus: true });
};
const unfoldOne = () => {
  const block = blocks[current];
  const node = block && document.getElementById(anchorOf(block.line));
  if (!node) return;
  const folds = [...node.querySelectorAll("details")];
  const isOpening = folds.some((each) => !each.open);
  folds.forEach((each) => { each.open = isOpening; });
};
const KEYS = {
  j: () => step(1), k: () => step(-1), "[": () => turnBranch(-1), "]": () => turnBranch(1), o: unfoldOne, e: unfoldAll,
  b: toggleSide, t: nextTheme, "?": () => keys.showModal(), g: () => { settling += 1; if (blocks.length) markCurrent(0); scrollTo(0, 0); },
  G: () => { if (blocks.length) reveal(blocks[blocks.length - 1].line.number, { focus: true }); },
  "/": () => { if (!isSideShown()) toggleSide(); findBox.focus(); findBox.select(); },
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  if (event.target instanceof HTMLElement && event.target.closest("input, textarea")) return;
  if (event.key === "Escape" && document.body.classList.contains("side-open")) { toggleSide(); return; }
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); }
});

// While one scrolls, the tree follows what is at the top of the screen.
let isLooking = false;
const look = () => {
  isLooking = false;
  if (performance.now() - settledAt < 500) return; // near the end nothing more can come to the top
  const box = column.getBoundingClientRect();
  const node = document.elementFromPoint(box.left + box.width / 2, 96)?.closest(".block");
  const place = node ? placeOf.get(Number(node.dataset.line)) : undefined;
  if (place !== undefined && place !== current) markCurrent(place);
};
addEventListener("scroll", () => { if (!isLooking) { isLooking = true; setTimeout(look, 120); } }, { passive: true });
addEventListener("beforeprint", fillAll);
addEventListener("hashchange", () => start(false));

const start = (isFirst) => {
  const named = anchored.get(location.hash.slice(1));
  const number = named === undefined ? null : named;
  if (isFirst) {
    standAt(number !== null && !pathTo(data.leaf).includes(number) ? newest[number] : data.leaf);
    drawAbout();
    drawBranch();
    drawRows();
    drawFoot();
    syncSide();
  }
  if (number !== null) goTo(number);
  else if (isFirst && blocks.length) markCurrent(0);
};
start(true);
document.documentElement.dataset.ready = "yes";
