// Elements, and Markdown as elements. Whatever a transcript holds gets into the page here and only
// as text nodes: there is no way from its words to markup.

const el = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
};

const LONGEST_MARKUP = 20000; // a longer stretch is shown as it is, so that no text can stall us
const DEEPEST = 4;

const link = (address, ...children) =>
  el("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, ...children);

const INLINE =
  /(?<!`)(`+)(?!`)([^]*?[^`])\1(?!`)|\*\*(?=\S)([^*\n]*[^*\s])\*\*|(?<![\w*])[*_](?=[^\s*_])([^*_\n]*[^*_\s])[*_](?![\w*])|\[([^\]\n]{1,300})\]\((https?:\/\/[^\s()]{1,2000})\)|https?:\/\/[^\s<>"'`)\]]{1,2000}/g;

const inline = (text, depth = 0) => {
  const out = document.createDocumentFragment();
  if (text.length > LONGEST_MARKUP || depth > DEEPEST) {
    out.append(text);
    return out;
  }
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    out.append(text.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[2] !== undefined) out.append(el("code", {}, found[2].replace(/^ (.+) $/, "$1")));
    else if (found[3] !== undefined) out.append(el("strong", {}, inline(found[3], depth + 1)));
    else if (found[4] !== undefined) out.append(el("em", {}, inline(found[4], depth + 1)));
    else if (found[6] !== undefined) out.append(link(found[6], inline(found[5], depth + 1)));
    else {
      const address = found[0].replace(/[.,;:!?]+$/, "");
      out.append(link(address, address), found[0].slice(address.length));
    }
  }
  out.append(text.slice(at));
  return out;
};

const codeBlock = (text, name, isWrapped) => {
  const copy = el("button", { class: "copy", type: "button", "aria-label": "Copy" }, "Copy");
  copy.addEventListener("click", () => {
    navigator.clipboard?.writeText(text).then(
      () => { copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); },
      () => { copy.textContent = "Not allowed"; },
    );
  });
  const code = el("pre", { class: isWrapped ? "code wraps" : "code", tabindex: "0", role: "region", "aria-label": name || "Code" }, el("code", {}, text));
  return el("div", { class: "code-box" }, name ? el("span", { class: "code-name" }, name) : null, copy, code);
};

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.+?)\s*#*\s*$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)+\|?\s*$/;

const cells = (row) => row.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

const table = (rows) => {
  const head = el("tr", {}, ...cells(rows[0]).map((cell) => el("th", {}, inline(cell))));
  const body = rows.slice(2).map((row) => el("tr", {}, ...cells(row).map((cell) => el("td", {}, inline(cell)))));
  return el("div", { class: "table" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
};

const list = (items) => {
  const root = { indent: -1, node: el("div", { class: "list" }) };
  const stack = [root];
  for (const { indent, mark, text } of items) {
    while (stack.length > 1 && indent < stack[stack.length - 1].indent) stack.pop();
    const isOrdered = /\d/.test(mark);
    let top = stack[stack.length - 1];
    if (indent > top.indent && stack.length < 8) {
      const node = el(isOrdered ? "ol" : "ul", isOrdered ? { start: parseInt(mark, 10) } : {});
      (top.last || top.node).append(node);
      top = { indent, node };
      stack.push(top);
    }
    const task = /^\[([ xX])\]\s+/.exec(text);
    const words = task ? text.slice(task[0].length) : text;
    top.last = el("li", { class: task ? "task" : null },
      task ? el("span", { class: "box", "aria-label": task[1] === " " ? "open" : "done" }, task[1] === " " ? "☐" : "☑") : null,
      inline(words));
    top.node.append(top.last);
  }
  return root.node;
};

// The blocks of `text` as elements. Anything it does not know is a paragraph with its line breaks.
const prose = (text, depth = 0) => {
  const out = document.createDocumentFragment();
  const lines = text.split("\n");
  let at = 0;
  const taken = (test) => {
    const start = at;
    while (at < lines.length && test(lines[at])) at += 1;
    return lines.slice(start, at);
  };
  const isPlain = (line) =>
    line.trim() && !FENCE.test(line) && !HEADING.test(line) && !RULE.test(line) && !ITEM.test(line) && !line.startsWith(">");
  while (at < lines.length) {
    const line = lines[at];
    let found;
    if (!line.trim()) at += 1;
    else if ((found = FENCE.exec(line))) {
      const end = new RegExp(`^ {0,3}\\${found[1][0]}{${found[1].length},}\\s*$`);
      at += 1;
      const code = taken((each) => !end.test(each));
      at += 1;
      out.append(codeBlock(code.join("\n"), found[2]));
    } else if ((found = HEADING.exec(line))) {
      at += 1;
      out.append(el(`h${Math.min(6, found[1].length + 2)}`, {}, inline(found[2])));
    } else if (RULE.test(line)) {
      at += 1;
      out.append(el("hr"));
    } else if (line.startsWith(">") && depth < DEEPEST) {
      const quoted = taken((each) => each.startsWith(">")).map((each) => each.replace(/^> ?/, ""));
      out.append(el("blockquote", {}, prose(quoted.join("\n"), depth + 1)));
    } else if (ITEM.test(line)) {
      const items = [];
      while (at < lines.length && lines[at].trim()) {
        const item = ITEM.exec(lines[at]);
        if (item) items.push({ indent: item[1].length, mark: item[2], text: item[3] });
        else if (FENCE.test(lines[at])) break;
        else items[items.length - 1].text += "\n" + lines[at].trim();
        at += 1;
      }
      out.append(list(items));
    } else if (line.includes("|") && TABLE_RULE.test(lines[at + 1] || "")) {
      out.append(table(taken((each) => each.includes("|") && each.trim())));
    } else {
      const paragraph = taken(isPlain);
      if (!paragraph.length) { paragraph.push(line); at += 1; }
      out.append(el("p", {}, inline(paragraph.join("\n"))));
    }
  }
  return out;
};

const two = (number) => String(number).padStart(2, "0");
const dayOf = (ms) => {
  const day = new Date(ms);
  return Number.isNaN(day.getTime()) ? "" : day.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" });
};
const timeOf = (ms) => {
  const day = new Date(ms);
  return Number.isNaN(day.getTime()) ? "" : `${two(day.getHours())}:${two(day.getMinutes())}`;
};
const counted = (count, one, many) => `${count.toLocaleString("en-US")} ${count === 1 ? one : many || one + "s"}`;
const lasted = (ms) => (ms < 1000 ? `${ms} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60000)} min`);
const sized = (bytes) => (bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);
const dollars = (microcents) => `$${(microcents / 1e8).toFixed(microcents < 1e8 ? 4 : 2)}`;
