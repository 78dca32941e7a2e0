// The graph of a flow as SVG: move by dragging or the wheel, zoom with Ctrl and the wheel or two fingers.
import { oneLine } from "../format.js";
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { Fault, Waiting } from "../parts.js";
import { NODE, useLayout } from "./layout.js";
import { STATES, titleOf, toldOf } from "./states.js";

const SCALES = [0.02, 2];
const READABLE = 0.55;
const NAMED = 0.28;
const NEAR = 0.8;
const ARROWS = ["plain", "done", "unread", "back"];

const within = (value, [least, most]) => Math.min(most, Math.max(least, value));

/** `text` in at most `room` columns; wide letters take two. */
function clipped(text, room) {
  let used = 0;
  let kept = "";
  for (const letter of oneLine(text)) {
    used += letter.codePointAt(0) > 0x2e7f ? 2 : 1;
    if (used > room) return `${kept.slice(0, -1)}…`;
    kept += letter;
  }
  return kept;
}

/** A soft line through `points`. */
function line(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const middle = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  let path = `M${at(points[0])}`;
  for (let n = 1; n < points.length - 1; n += 1) path += `Q${at(points[n])} ${at(middle(points[n], points[n + 1]))}`;
  return `${path}L${at(points.at(-1))}`;
}

/** The part of the graph that is seen: {x, y, scale}, and what changes it. */
function useWindow(box, layout, focus) {
  const [seen, setSeen] = useState(null);
  const moved = useRef(false);
  const size = () => [box.current.clientWidth, box.current.clientHeight];
  const fitting = () => Math.min((size()[0] - 8) / layout.width, (size()[1] - 8) / layout.height, 1);
  const around = (x, y, scale) => ({ scale, x: size()[0] / 2 - x * scale, y: size()[1] / 2 - y * scale });
  /** The shift that shows the point `at` in the middle, and no more empty room than there must be. */
  const covering = (axis, at) => {
    const [whole, room] = [[layout.width, layout.height][axis] * NEAR, size()[axis]];
    return whole <= room ? (room - whole) / 2 : within(room / 2 - at * NEAR, [room - whole, 0]);
  };
  const fit = useCallback(() => setSeen(around(layout.width / 2, layout.height / 2, fitting())), [layout]);
  const begin = useCallback(() => {
    const place = layout.nodes.get(focus);
    if (fitting() >= READABLE || !place) fit();
    else setSeen({ scale: NEAR, x: covering(0, place.x), y: covering(1, place.y) });
  }, [layout, focus]);
  const zoom = useCallback((by, at) => {
    moved.current = true;
    setSeen((old) => {
      const scale = within(old.scale * by, SCALES);
      const [x, y] = at ?? size().map((each) => each / 2);
      return { scale, x: x - ((x - old.x) * scale) / old.scale, y: y - ((y - old.y) * scale) / old.scale };
    });
  }, []);
  const move = useCallback((x, y) => {
    moved.current = true;
    setSeen((old) => ({ ...old, x: old.x + x, y: old.y + y }));
  }, []);
  /** Moves so that the point of the graph is seen. */
  const show = useCallback(({ x, y }) => setSeen((old) => {
    const edge = 6;
    const half = [(NODE.width / 2) * old.scale + edge, (NODE.height / 2) * old.scale + edge];
    const at = [x * old.scale + old.x, y * old.scale + old.y];
    const [dx, dy] = size().map((room, n) => within(at[n], [half[n], Math.max(half[n], room - half[n])]) - at[n]);
    return dx || dy ? { ...old, x: old.x + dx, y: old.y + dy } : old;
  }), []);
  useLayoutEffect(() => {
    if (!layout) return undefined;
    moved.current = false;
    begin();
    const sized = new ResizeObserver(() => { if (!moved.current) begin(); });
    sized.observe(box.current);
    return () => sized.disconnect();
  }, [layout]);
  return { seen, fit: () => { moved.current = false; fit(); }, zoom, move, show };
}

/** Dragging with one pointer, zooming with two, the wheel. */
function useHands(box, { zoom, move }) {
  const pointers = useRef(new Map());
  const isDragged = useRef(false);
  useEffect(() => {
    const turned = (event) => {
      event.preventDefault();
      const frame = box.current.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 240), [event.clientX - frame.left, event.clientY - frame.top]);
      else if (event.shiftKey && !event.deltaX) move(-event.deltaY, 0);
      else move(-event.deltaX, -event.deltaY);
    };
    const element = box.current;
    element.addEventListener("wheel", turned, { passive: false });
    return () => element.removeEventListener("wheel", turned);
  }, [zoom, move]);
  const spread = () => {
    const [a, b] = [...pointers.current.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  };
  return {
    onPointerDown(event) {
      if (event.button !== 0) return;
      pointers.current.set(event.pointerId, [event.clientX, event.clientY]);
      isDragged.current = false;
    },
    onPointerMove(event) {
      const before = pointers.current.get(event.pointerId);
      if (!before) return;
      const wide = pointers.current.size === 2 ? spread() : 0;
      const by = [event.clientX - before[0], event.clientY - before[1]];
      if (!isDragged.current && Math.hypot(...by) < 4) return;
      if (!isDragged.current) box.current.setPointerCapture(event.pointerId);
      isDragged.current = true;
      pointers.current.set(event.pointerId, [event.clientX, event.clientY]);
      if (!wide) return move(...by);
      const frame = box.current.getBoundingClientRect();
      const [a, b] = [...pointers.current.values()];
      return zoom(spread() / wide, [(a[0] + b[0]) / 2 - frame.left, (a[1] + b[1]) / 2 - frame.top]);
    },
    onPointerUp(event) { pointers.current.delete(event.pointerId); },
    onPointerCancel(event) { pointers.current.delete(event.pointerId); },
    onClickCapture(event) {
      if (!isDragged.current) return;
      isDragged.current = false;
      event.preventDefault();
      event.stopPropagation();
    },
  };
}

/** The nearest node from `from` in the direction of `[x, y]`; undefined if there is none. */
function nextNode(places, from, [x, y]) {
  const start = places.get(from);
  let best;
  let least = Infinity;
  for (const [id, place] of places) {
    const ahead = (place.x - start.x) * x + (place.y - start.y) * y;
    const aside = Math.abs((place.x - start.x) * y) + Math.abs((place.y - start.y) * x);
    const far = ahead + 2 * aside;
    if (id !== from && ahead > 1 && aside <= 2.5 * ahead && far < least) {
      best = id;
      least = far;
    }
  }
  return best;
}

const STEPS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

/**
 * `nodes` with id, role, state, reason and session; `edges` with from, to and state.
 * Arrow keys go from node to node, Enter calls `onSelect(id)`, o opens the session, + - 0 zoom.
 */
export function Graph({ nodes, edges, selected, onSelect, label }) {
  const box = useRef(null);
  const [room, setRoom] = useState(null);
  const { layout, error } = useLayout(nodes, edges, room);
  const [at, setAt] = useState(null);
  const focus = selected ?? (nodes.find((each) => each.state === "waiting") ?? nodes.find((each) => each.state === "active") ?? nodes[0])?.id;
  const { seen, fit, zoom, move, show } = useWindow(box, layout, focus);
  const hands = useHands(box, { zoom, move });
  useLayoutEffect(() => {
    const measure = () => setRoom([box.current.clientWidth, box.current.clientHeight]);
    measure();
    const sized = new ResizeObserver(measure);
    sized.observe(box.current);
    return () => sized.disconnect();
  }, []);
  const current = layout?.nodes.has(at) ? at : focus;

  function goTo(id) {
    setAt(id);
    show(layout.nodes.get(id));
    box.current.querySelector(`[data-node="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
  }
  function onKeyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !layout) return;
    const step = STEPS[event.key];
    const next = step && nextNode(layout.nodes, current, step);
    const session = nodes.find((each) => each.id === current)?.session;
    if (next) goTo(next);
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (event.key === "Home") goTo(nodes[0].id);
    else if (event.key === "End") goTo(nodes.at(-1).id);
    else if (event.key === "o" && session) location.hash = `#/sessions/${encodeURIComponent(session)}`;
    else if (!step) return;
    event.preventDefault();
  }
  const scale = seen?.scale ?? 1;
  return html`<div class="graph" ref=${box} ...${hands} role="group" aria-label=${label}>
    ${error && html`<${Fault} error=${error} />`}
    ${!layout && !error && html`<${Waiting} what="Drawing the graph…" />`}
    ${layout && seen && html`<svg class=${scale < NAMED ? "far unnamed" : scale < READABLE ? "far" : ""} onKeyDown=${onKeyDown}>
      <defs>${ARROWS.map((name) => html`<marker id=${`arrow-${name}`} class=${`arrow ${name}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0.5L8 4L0 7.5z" /></marker>`)}</defs>
      <g transform=${`translate(${seen.x.toFixed(1)} ${seen.y.toFixed(1)}) scale(${scale.toFixed(4)})`}>
        <${Edges} layout=${layout} edges=${edges} current=${selected} />
        ${nodes.map((node) => layout.nodes.has(node.id) && html`<${Node} key=${node.id} node=${node} place=${layout.nodes.get(node.id)}
          isSelected=${node.id === selected} isCurrent=${node.id === current} isFar=${scale < READABLE} onSelect=${onSelect} onFocus=${setAt} />`)}
      </g></svg>`}
    <div class="graph-tools" role="group" aria-label="Size of the graph">
      <button class="quiet" aria-label="Smaller" onClick=${() => zoom(0.8)}>−</button>
      <button class="quiet" onClick=${fit} title="Show the whole graph (0)">${Math.round(scale * 100)} %</button>
      <button class="quiet" aria-label="Larger" onClick=${() => zoom(1.25)}>+</button></div>
  </div>`;
}

function Edges({ layout, edges, current }) {
  const states = new Map(edges.map((each) => [`${each.from}\n${each.to}`, each]));
  return html`<g aria-hidden="true">${layout.edges.map(({ from, to, points }) => {
    const edge = states.get(`${from}\n${to}`);
    const state = edge?.state ?? "plain";
    const isNear = from === current || to === current;
    return html`<path key=${`${from}\n${to}`} class=${`edge ${state} ${isNear ? "near" : ""}`} d=${line(points)}
      marker-end=${state === "back" ? undefined : `url(#arrow-${state})`} marker-start=${state === "back" ? "url(#arrow-back)" : undefined}>
      <title>${toldOf(edge ?? { from, to, state })}</title></path>`;
  })}</g>`;
}

function Node({ node, place, isSelected, isCurrent, isFar, onSelect, onFocus }) {
  const { width, height } = NODE;
  const [symbol] = STATES[node.state];
  const choose = (event) => {
    event.preventDefault();
    onSelect(node.id);
  };
  return html`<g class=${`node ${node.state} ${isSelected ? "selected" : ""}`} transform=${`translate(${place.x - width / 2} ${place.y - height / 2})`}>
    <a href=${`#${location.hash.slice(1).split("?")[0]}`} data-node=${node.id} tabindex=${isCurrent ? "0" : "-1"} aria-label=${titleOf(node)} aria-current=${isSelected ? "true" : undefined}
        onClick=${choose} onKeyDown=${(event) => event.key === " " && choose(event)} onFocus=${() => onFocus(node.id)}>
      <title>${titleOf(node)}</title>
      <rect width=${width} height=${height} rx="6" />
      <text class="symbol" x="10" y="20" aria-hidden="true">${symbol}</text>
      <text class="id" x="28" y="20" aria-hidden="true">${clipped(node.id, isFar ? 14 : node.session ? 17 : 20)}</text>
      <text class="role" x="28" y="37" aria-hidden="true">${clipped([node.role, node.reason].filter(Boolean).join(" · "), 22)}</text></a>
    ${node.session && html`<a class="out" href=${`#/sessions/${encodeURIComponent(node.session)}`} tabindex="-1" aria-label=${`Session of ${oneLine(node.id)}`}>
      <title>Open the session</title><rect x=${width - 24} y="3" width="21" height="21" rx="4" /><text x=${width - 19} y="18" aria-hidden="true">↗</text></a>`}
  </g>`;
}
