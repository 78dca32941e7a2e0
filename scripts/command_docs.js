const filter = document.getElementById("filter");
const rows = [...document.querySelectorAll("#commands li")];
const articles = new Map([...document.querySelectorAll("article")].map((node) => [node.id, node]));

const show = () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) {
    const fits = words.every((word) => row.dataset.text.includes(word));
    row.hidden = !fits;
    articles.get(row.firstChild.hash.slice(1)).hidden = !fits;
  }
};
filter.addEventListener("input", show);
filter.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { filter.value = ""; show(); filter.blur(); }
  if (event.key === "Enter") { rows.find((row) => !row.hidden)?.firstChild.click(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== filter) { event.preventDefault(); filter.focus(); }
});

const here = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    if (!isIntersecting) continue;
    for (const row of rows) row.firstChild.classList.toggle("here", row.firstChild.hash === `#${target.id}`);
  }
}, { rootMargin: "0px 0px -75% 0px" });
for (const article of articles.values()) here.observe(article);
