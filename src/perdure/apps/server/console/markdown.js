// Markdown of messages as elements. Outside text never becomes HTML: what is not known is text.
import { html } from "./html.js";
import { safe } from "./format.js";

const FENCE = /^(`{3,}|~{3,})\s*([\w+#.-]*)\s*$/;
// Bounded everywhere: a text of any size is read in linear time.
const INLINE = /`([^`\n]{1,2000})`|\*\*([^*\n]{1,2000})\*\*|\*([^*\s][^*\n]{0,2000})\*|\[([^\]\n]{1,300})\]\(([^()\s]{1,2000})\)|(https?:\/\/[^\s<>()\[\]"'`]{1,2000}[^\s<>()\[\]"'`.,;:!?])/g;

export function Markdown({ text }) {
  return html`<div class="prose">${blocks(safe(text).split("\n"))}</div>`;
}

function blocks(lines) {
  const found = [];
  for (let at = 0; at < lines.length;) {
    const [block, next] = blockAt(lines, at);
    if (block) found.push(block);
    at = next;
  }
  return found;
}

function blockAt(lines, at) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  if (/^\s*$/.test(line)) return [null, at + 1];
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  if (heading) return [html`<p class=${`heading level-${heading[1].length}`}>${inline(heading[2])}</p>`, at + 1];
  if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) return [html`<hr />`, at + 1];
  if (/^\s*>/.test(line)) return quote(lines, at);
  if (/^\s*([-*+]|\d{1,9}[.)])\s+/.test(line)) return list(lines, at);
  if (line.includes("|") && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "")) {
    return table(lines, at);
  }
  return paragraph(lines, at);
}

function code(lines, at, fence) {
  const body = [];
  let next = at + 1;
  while (next < lines.length && !lines[next].startsWith(fence[1])) body.push(lines[next++]);
  return [html`<${Code} text=${body.join("\n")} language=${fence[2]} />`, next + 1];
}

export function Code({ text, language }) {
  const copy = () => navigator.clipboard?.writeText(text);
  return html`<div class="code">
    <div class="code-head"><span>${language || "text"}</span><button class="quiet" onClick=${copy}>Copy</button></div>
    <pre tabindex="0"><code>${text}</code></pre>
  </div>`;
}

function quote(lines, at) {
  const body = [];
  let next = at;
  while (next < lines.length && /^\s*>/.test(lines[next])) body.push(lines[next++].replace(/^\s*> ?/, ""));
  return [html`<blockquote>${blocks(body)}</blockquote>`, next];
}

function list(lines, at) {
  const items = [];
  const isNumbered = /^\s*\d/.test(lines[at]);
  const indent = /^\s*/.exec(lines[at])[0].length;
  let next = at;
  while (next < lines.length) {
    const item = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/.exec(lines[next]);
    if (item && item[1].length <= indent + 1) {
      items.push([item[3]]);
    } else if (items.length && /^\s{2,}\S/.test(lines[next])) {
      items.at(-1).push(lines[next].slice(Math.min(indent + 2, /^\s*/.exec(lines[next])[0].length)));
    } else {
      break;
    }
    next += 1;
  }
  const rows = items.map((item) =>
    html`<li>${item.length === 1 ? inline(item[0]) : blocks(item)}</li>`);
  return [isNumbered ? html`<ol>${rows}</ol>` : html`<ul>${rows}</ul>`, next];
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function table(lines, at) {
  const rows = [];
  let next = at + 2;
  while (next < lines.length && lines[next].includes("|")) rows.push(cells(lines[next++]));
  return [html`<div class="table" tabindex="0"><table>
    <thead><tr>${cells(lines[at]).map((cell) => html`<th>${inline(cell)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${inline(cell)}</td>`)}</tr>`)}</tbody>
  </table></div>`, next];
}

function paragraph(lines, at) {
  const body = [];
  let next = at;
  while (next < lines.length && lines[next].trim() && !FENCE.test(lines[next])
      && !/^\s*(>|#{1,6}\s|[-*+]\s|\d{1,9}[.)]\s)/.test(body.length ? lines[next] : "")) {
    body.push(lines[next++]);
  }
  return [html`<p>${inline(body.join("\n"))}</p>`, next];
}

function inline(text) {
  const found = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > from) found.push(text.slice(from, match.index));
    from = match.index + match[0].length;
    const [whole, ticked, bold, slanted, label, target, bare] = match;
    if (ticked !== undefined) found.push(html`<code>${ticked}</code>`);
    else if (bold !== undefined) found.push(html`<strong>${inline(bold)}</strong>`);
    else if (slanted !== undefined) found.push(html`<em>${inline(slanted)}</em>`);
    else found.push(link(bare ?? target, bare ?? label, whole));
  }
  if (from < text.length) found.push(text.slice(from));
  return found;
}

function link(target, label, whole) {
  if (!/^(https?:\/\/|mailto:)/i.test(target)) return whole;
  return html`<a href=${target} target="_blank" rel="noopener noreferrer">${label}</a>`;
}
