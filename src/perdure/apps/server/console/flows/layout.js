// Where the nodes and edges of a graph are drawn. A layout is made once for each shape of a graph.
import { useEffect, useState } from "../html.js";

export const NODE = { width: 184, height: 48 };
const KEPT = 8;

let worker = null;
let asked = 0;
const waiting = new Map();
const known = new Map();

function begin() {
  worker = new Worker(new URL("./layout_worker.js", import.meta.url), { type: "module" });
  worker.onmessage = ({ data }) => {
    const each = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error === undefined) each.resolve(data.layout);
    else each.reject(new Error(`The graph cannot be drawn: ${data.error}`));
  };
  worker.onerror = () => {
    for (const each of waiting.values()) each.reject(new Error("The graph cannot be drawn: its worker did not start."));
    waiting.clear();
    worker = null;
  };
}

function layoutOf(shape) {
  const key = JSON.stringify(shape);
  if (!known.has(key)) {
    if (worker === null) begin();
    const made = new Promise((resolve, reject) => {
      asked += 1;
      waiting.set(asked, { resolve, reject });
      worker.postMessage({ id: asked, ...shape });
    });
    made.catch(() => known.delete(key));
    known.set(key, made);
    if (known.size > KEPT) known.delete(known.keys().next().value);
  }
  return known.get(key);
}

/** The layout of `nodes` and `edges`: {layout, error}; the last one stays until the next is there. */
export function useLayout(nodes, edges, direction) {
  const ids = nodes.map((each) => each.id);
  const there = new Set(ids);
  const ends = edges.map((each) => [each.from, each.to]).filter(([from, to]) => there.has(from) && there.has(to));
  const shape = { nodes: ids, edges: ends, direction, ...NODE };
  const key = JSON.stringify(shape);
  const [found, setFound] = useState({ layout: null, error: null });
  useEffect(() => {
    if (direction === null) return undefined;
    let isOver = false;
    layoutOf(shape).then(
      (layout) => isOver || setFound({ layout: keyed(layout, ids, ends), error: null }),
      (error) => isOver || setFound({ layout: null, error }),
    );
    return () => { isOver = true; };
  }, [key]);
  return found;
}

const keyed = (layout, ids, ends) => ({
  width: layout.width,
  height: layout.height,
  nodes: new Map(ids.map((id, n) => [id, layout.nodes[n]])),
  edges: ends.map(([from, to], n) => ({ from, to, points: layout.edges[n] })),
});
