// Where the nodes and edges of a graph are drawn. A layout is made once for each shape of a graph.
import { useEffect, useState } from "../html.js";

export const NODE = { width: 184, height: 48 };
const KEPT = 8;
const LARGE = 150;

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

/**
 * The layout of `nodes` and `edges` that fits best into `room`, [width, height]: {layout, error}.
 * The last one stays until the next is there. A large graph is laid out in one direction only.
 */
export function useLayout(nodes, edges, room) {
  const ids = nodes.map((each) => each.id);
  const there = new Set(ids);
  const ends = edges.map((each) => [each.from, each.to]).filter(([from, to]) => there.has(from) && there.has(to));
  const usual = room && (room[0] < room[1] ? ["TB", "LR"] : ["LR", "TB"]);
  const directions = ids.length > LARGE ? usual?.slice(0, 1) : ["LR", "TB"];
  const shape = { nodes: ids, edges: ends, ...NODE };
  const key = JSON.stringify([shape, directions]);
  const [found, setFound] = useState({ layouts: null, error: null });
  useEffect(() => {
    if (!directions) return undefined;
    let isOver = false;
    Promise.all(directions.map((direction) => layoutOf({ ...shape, direction }))).then(
      (layouts) => isOver || setFound({ layouts: new Map(layouts.map((each, n) => [directions[n], keyed(each, ids, ends)])), error: null }),
      (error) => isOver || setFound({ layouts: null, error }),
    );
    return () => { isOver = true; };
  }, [key]);
  return { layout: room && found.layouts && fittest(found.layouts, usual, room), error: found.error };
}

/** The layout in the usual direction of a window of this shape, if not another is clearly larger in it. */
function fittest(layouts, usual, room) {
  const [first, second] = usual.map((direction) => layouts.get(direction));
  if (!first || !second) return first ?? second;
  const size = (layout) => Math.min(room[0] / layout.width, room[1] / layout.height, 1);
  return size(second) > 1.2 * size(first) ? second : first;
}

const keyed = (layout, ids, ends) => ({
  width: layout.width,
  height: layout.height,
  nodes: new Map(ids.map((id, n) => [id, layout.nodes[n]])),
  edges: ends.map(([from, to], n) => ({ from, to, points: layout.edges[n] })),
});
