// Elements, and Markdown as elements. Whatever a transcript holds gets into the page here: as text
// nodes, or as the few elements that are left of Markdown after it was sanitized.

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

const LONGEST_MARKUP = 200000; // a longer text is shown as it is

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

// Markdown is rendered by markdown-it, which is given no HTML to keep, and sanitized by DOMPurify; both
// are in vendor/. What comes out is elements, never a string: links to pages, and no images.
const markdown = globalThis.markdownit({ html: false, linkify: true, breaks: true, maxNesting: 40 });
markdown.disable("image");
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
markdown.validateLink = (address) => /^https?:\/\//i.test(address);
markdown.core.ruler.push("page", (state) => {
  for (const token of state.tokens) {
    if (token.type.startsWith("heading_")) token.tag = `h${Math.min(6, Number(token.tag.slice(1)) + 2)}`;
    if (token.type === "th_open" || token.type === "td_open") token.attrs = null; // a style of its own
  }
});

const ALLOWED = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["class", "href", "start"],
  ALLOWED_URI_REGEXP: /^https?:\/\//i,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const task = (item) => {
  const words = item.firstElementChild && item.firstElementChild.tagName === "P" ? item.firstElementChild : item;
  const first = words.firstChild;
  const found = first && first.nodeType === Node.TEXT_NODE ? /^\s*\[([ xX])\]\s/.exec(first.data) : null;
  if (!found) return;
  first.data = first.data.slice(found[0].length);
  item.className = "task";
  words.prepend(el("span", { class: "box", "aria-label": found[1] === " " ? "open" : "done" }, found[1] === " " ? "☐" : "☑"));
};

// The blocks of `text` as elements.
const prose = (text) => {
  if (text.length > LONGEST_MARKUP) {
    const out = document.createDocumentFragment();
    out.append(el("p", { class: "plain" }, text));
    return out;
  }
  const out = globalThis.DOMPurify.sanitize(markdown.render(text), ALLOWED);
  for (const pre of out.querySelectorAll("pre")) {
    const code = pre.firstElementChild || pre;
    const language = /^language-(\S+)$/.exec(code.className);
    pre.replaceWith(codeBlock(code.textContent.replace(/\n$/, ""), language ? language[1] : ""));
  }
  for (const node of out.querySelectorAll("table")) {
    const box = el("div", { class: "table" });
    node.replaceWith(box);
    box.append(node);
  }
  for (const anchor of out.querySelectorAll("a")) {
    anchor.rel = "noopener noreferrer";
    anchor.target = "_blank";
  }
  out.querySelectorAll("li").forEach(task);
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
