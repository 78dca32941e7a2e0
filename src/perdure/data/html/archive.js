const rows = JSON.parse(document.getElementById("data").textContent);
const list = document.getElementById("sessions");
const count = document.getElementById("count");
const find = document.getElementById("find");
const AROUND = 90;

for (const row of rows) row.folded = [row.title, row.facts, row.text].join("\n").toLowerCase();

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function hit(text, word) {
  const at = text.toLowerCase().indexOf(word);
  if (at < 0) return null;
  const line = element("p", "hit");
  const start = Math.max(at - AROUND, 0);
  line.append((start ? "… " : "") + text.slice(start, at));
  line.append(element("mark", "", text.slice(at, at + word.length)));
  line.append(text.slice(at + word.length, at + word.length + AROUND) + " …");
  return line;
}

function show() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => words.every((word) => row.folded.includes(word)));
  list.replaceChildren(...found.map((row) => {
    const item = element("li");
    const link = element("a", "", row.title);
    link.href = row.file;
    item.append(link, element("p", "facts", row.facts));
    const line = words.length ? hit(row.text, words[0]) : null;
    if (line) item.append(line);
    return item;
  }));
  count.textContent = `${found.length} of ${rows.length}`;
}

find.addEventListener("input", show);
show();
