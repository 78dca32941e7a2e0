// pi's own session manager, context builder and /tree, driven by lines of JSON on standard input.
// Run as: node driver.mjs FOLDER-OF-THE-PACKAGE. One request a line; one answer a line.

import { createInterface } from "node:readline";
import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";

const root = process.argv[2];
const beside = join(root, "..", "pi-ai");
const ai = existsSync(beside) ? beside : join(root, "node_modules", basename(dirname(root)), "pi-ai");
const load = (folder, path) => import(join(folder, "dist", path));
const { SessionManager } = await load(root, "core/session-manager.js");
const { convertToLlm } = await load(root, "core/messages.js");
const { transformMessages } = await load(ai, "providers/transform-messages.js");

const MODEL = { provider: "openai", id: "none", api: "openai-completions", input: ["text", "image"] };

function randomOf(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return {
    next,
    below: (n) => Math.floor(next() * n),
    one: (list) => list[Math.floor(next() * list.length)],
  };
}

const LABELLED = ["message", "compaction", "branch_summary", "custom_message"]; // what /tree shows
const WORDS = ["tide", "harbour", "größe", "漢字", "emoji 🦀", "line\u2028end", "\u0085", 'q"uote', "back\\slash",
  "tab\there", "two\nlines", "<summary>", "0.000005", "</x>", "\u0001control", "ﬀ"];
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

class Player {
  constructor(manager, seed) {
    this.manager = manager;
    this.random = randomOf(seed);
    this.seed = seed;
    this.number = 0;
  }

  words(what) {
    const count = 1 + this.random.below(4);
    const picked = Array.from({ length: count }, () => this.random.one(WORDS));
    return `${what} ${this.seed}.${this.number++} ${picked.join(" ")}`;
  }

  text(what) {
    return { type: "text", text: this.words(what) };
  }

  usage() {
    const [input, output] = [this.random.below(9000), 1 + this.random.below(900)];
    const cost = { input: input * 5e-7, output: output * 1.5e-6, cacheRead: 0, cacheWrite: 0 };
    cost.total = cost.input + cost.output;
    return { input, output, cacheRead: 0, cacheWrite: 0, totalTokens: input + output, cost };
  }

  user() {
    const roll = this.random.below(6);
    let content = this.words("ask");
    if (roll < 3) content = [this.text("ask")];
    if (roll === 0) content.push({ type: "image", data: PIXEL, mimeType: "image/png" });
    return this.manager.appendMessage({ role: "user", content, timestamp: Date.now() });
  }

  assistant(extra = {}, parts = []) {
    const content = [...parts];
    if (this.random.below(4) === 0) {
      content.unshift({ type: "thinking", thinking: this.words("think"), thinkingSignature: "sig" });
    }
    if (!parts.length || this.random.below(2)) content.push(this.text("say"));
    return this.manager.appendMessage({
      role: "assistant", content: content.sort((a, b) => (a.type === "toolCall") - (b.type === "toolCall")),
      api: "openai-completions", provider: this.random.one(["openai", "anthropic"]),
      model: this.random.one(["gpt-5", "claude-5"]), usage: this.usage(), stopReason: "stop",
      timestamp: Date.now(), ...extra,
    });
  }

  tools() {
    const count = 1 + this.random.below(3);
    const calls = Array.from({ length: count }, (_, n) => ({
      type: "toolCall", id: `c${this.seed}_${this.number}_${n}`, name: this.random.one(["read", "bash"]),
      arguments: { path: this.words("path"), n: this.random.one([1, 1.5, 1e21, 5e-7, -0, null]) },
    }));
    this.assistant({ stopReason: "toolUse" }, calls);
    for (const call of calls) {
      if (this.random.below(12) === 0) continue; // the program was stopped
      this.manager.appendMessage({
        role: "toolResult", toolCallId: call.id, toolName: call.name, content: [this.text("result")],
        isError: this.random.below(5) === 0, timestamp: Date.now(),
      });
    }
  }

  failed() {
    const stopReason = this.random.one(["error", "aborted"]);
    return this.assistant({ stopReason, errorMessage: "529 overloaded", content: [this.text("(failed)")] });
  }

  bash() {
    return this.manager.appendMessage({
      role: "bashExecution", command: this.words("run"), output: this.random.one(["", this.words("out")]),
      exitCode: this.random.one([0, 3]), cancelled: false, truncated: false, timestamp: Date.now(),
      ...(this.random.below(3) ? {} : { excludeFromContext: true }),
    });
  }

  custom() {
    if (this.random.below(2)) return this.manager.appendCustomEntry("ext.state", { n: this.number, s: this.words("d") });
    const content = this.random.one([this.words("custom"), [this.text("custom")]]);
    return this.manager.appendCustomMessageEntry("ext.note", content, this.random.below(2) === 0, { a: 1 });
  }

  settings() {
    const which = this.random.below(3);
    if (which === 0) return this.manager.appendThinkingLevelChange(this.random.one(["off", "low", "high"]));
    if (which === 1) return this.manager.appendModelChange(this.random.one(["openai", "google"]), this.words("m").split(" ")[1]);
    return this.manager.appendSessionInfo(this.random.one([`  ${this.words("name")} `, ` ${this.words("two")}\n  lines `, " "])); // kept: none
  }

  label() {
    const entries = this.manager.getEntries().filter((e) => LABELLED.includes(e.type));
    if (!entries.length) return;
    const target = this.random.one(entries).id;
    this.manager.appendLabelChange(target, this.random.below(4) ? this.words("label") : undefined);
  }

  compact() {
    const path = this.manager.getBranch().filter((e) => e.type === "message" && e.message.role !== "toolResult");
    if (path.length < 2 || this.manager.getLeafEntry().type === "compaction") return;
    this.manager.appendCompaction(this.words("summary"), this.random.one(path).id, this.random.below(90000),
      this.random.below(2) ? { readFiles: ["a.txt"], modifiedFiles: [] } : undefined, undefined);
  }

  branch() {
    const entries = this.manager.getEntries();
    if (!entries.length) return;
    const roll = this.random.below(8);
    if (roll === 0) this.manager.resetLeaf();
    else if (roll < 3) this.manager.branchWithSummary(this.random.one([null, this.random.one(entries).id]), this.words("branch"), undefined, undefined);
    else this.manager.branch(this.random.one(entries).id);
    this.user();
  }

  step() {
    const roll = this.random.below(100);
    if (roll < 22) this.user();
    else if (roll < 46) this.assistant();
    else if (roll < 62) this.tools();
    else if (roll < 66) this.failed();
    else if (roll < 71) this.bash();
    else if (roll < 77) this.custom();
    else if (roll < 82) this.settings();
    else if (roll < 87) this.label();
    else if (roll < 91) this.compact();
    else this.branch();
  }

  play(steps) {
    for (let n = 0; n < steps; n++) this.step();
    if (this.manager.getLeafId() === null) this.user(); // pi remembers a leaf only by what comes after it
    if (!this.manager.getEntries().some((e) => e.message?.role === "assistant")) this.assistant();
  }
}

function contextOf(manager) {
  const { messages, thinkingLevel, model } = manager.buildSessionContext();
  const plain = convertToLlm(messages).map((message) => message.role === "assistant"
    ? { ...message, content: message.content.filter((part) => part.type !== "thinking") } : message);
  const next = { role: "user", content: "", timestamp: 0 }; // pi settles open calls when it sends more
  return { messages: transformMessages([...plain, next], MODEL).slice(0, -1), thinkingLevel, model };
}

function look(manager) {
  return {
    id: manager.getSessionId(), file: manager.getSessionFile(), cwd: manager.getCwd(),
    name: manager.getSessionName() ?? null, header: manager.getHeader(), leaf: manager.getLeafId(),
    entries: manager.getEntries().map(({ id, parentId, type }) => ({ id, parent: parentId, type })),
    labels: Object.fromEntries(manager.getEntries().map((e) => [e.id, manager.getLabel(e.id)]).filter(([, l]) => l)),
    ...contextOf(manager),
  };
}

let shown;

async function treeOf(path, filter) {
  if (!shown) {
    const theme = await load(root, "modes/interactive/theme/theme.js");
    theme.initTheme("dark");
    shown = await load(root, "modes/interactive/components/tree-selector.js");
  }
  const manager = SessionManager.open(path);
  const none = () => {};
  const component = new shown.TreeSelectorComponent(
    manager.getTree(), manager.getLeafId(), 4000, none, none, none, undefined, filter);
  const rowOf = ({ node }) => ({
    id: node.entry.id, parent: node.entry.parentId, type: node.entry.type, label: node.label ?? null,
  });
  const { flatNodes, filteredNodes } = component.treeList;
  return { nodes: flatNodes.map(rowOf), rows: filteredNodes.map(rowOf), leaf: manager.getLeafId(), text: component.render(160).join("\n") };
}

const OPERATIONS = {
  make({ folder, cwd, seed, steps }) {
    const manager = SessionManager.create(cwd, folder);
    new Player(manager, seed).play(steps);
    return { path: manager.getSessionFile(), leaf: manager.getLeafId() };
  },
  extend({ path, seed, steps }) {
    const manager = SessionManager.open(path);
    new Player(manager, seed).play(steps);
    return { leaf: manager.getLeafId() };
  },
  say({ path, texts, at }) {
    const manager = SessionManager.open(path);
    if (at !== undefined) manager.branch(at);
    const player = new Player(manager, 0);
    texts.forEach((text, n) => n % 2
      ? player.assistant({}, [{ type: "text", text }])
      : manager.appendMessage({ role: "user", content: [{ type: "text", text }], timestamp: Date.now() }));
    return { leaf: manager.getLeafId() };
  },
  fork({ path, at }) {
    const manager = SessionManager.open(path);
    return { path: manager.createBranchedSession(at ?? manager.getLeafId()) };
  },
  look: ({ path }) => look(SessionManager.open(path)),
  recent: ({ cwd, folder }) => look(SessionManager.continueRecent(cwd, folder)),
  list: async ({ cwd, folder }) => ({ sessions: await SessionManager.list(cwd, folder) }),
  tree: ({ path, filter }) => treeOf(path, filter),
};

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const { op, ...facts } = JSON.parse(line);
    answer = await OPERATIONS[op](facts);
  } catch (error) {
    answer = { error: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
