// A list of rows of one height, of which only those in view are elements.
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

const AROUND = 12;

/**
 * `count` rows, each `height` pixels high, drawn by `row(index, style, isSelected)`.
 * Arrow keys, j and k move; Enter calls `onOpen(index)`. `onEnd` is called near the last row.
 */
export function Rows({ count, height, row, label, selected = -1, onSelect, onOpen, onEnd, role = "listbox" }) {
  const box = useRef(null);
  const [range, setRange] = useState([0, 40]);
  const measure = useCallback(() => {
    if (!box.current) return;
    const { scrollTop, clientHeight } = box.current;
    const first = Math.max(0, Math.floor(scrollTop / height) - AROUND);
    const last = Math.min(count, Math.ceil((scrollTop + clientHeight) / height) + AROUND);
    setRange((old) => (old[0] === first && old[1] === last ? old : [first, last]));
    if (onEnd && last >= count - 5) onEnd();
  }, [count, height, onEnd]);
  useLayoutEffect(measure, [measure]);
  useEffect(() => {
    const seen = new ResizeObserver(measure);
    seen.observe(box.current);
    return () => seen.disconnect();
  }, [measure]);
  useLayoutEffect(() => {
    if (selected < 0 || !box.current) return;
    const at = selected * height;
    const { scrollTop, clientHeight } = box.current;
    if (at < scrollTop) box.current.scrollTop = at;
    else if (at + height > scrollTop + clientHeight) box.current.scrollTop = at + height - clientHeight;
  }, [selected, height]);

  function onKeyDown(event) {
    if (event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(box.current.clientHeight / height) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -count, End: count };
    if (event.key in steps && count) {
      event.preventDefault();
      onSelect?.(Math.min(count - 1, Math.max(0, selected + steps[event.key])));
    } else if (event.key === "Enter" && selected >= 0) {
      event.preventDefault();
      onOpen?.(selected);
    }
  }

  const rows = [];
  for (let index = range[0]; index < Math.min(range[1], count); index += 1) {
    rows.push(row(index, { top: `${index * height}px`, height: `${height}px` }, index === selected));
  }
  return html`<div class="scroll" ref=${box} role=${role} aria-label=${label} tabindex="0" data-key="l"
      aria-activedescendant=${selected >= 0 ? `row-${selected}` : undefined}
      onScroll=${measure} onKeyDown=${onKeyDown}>
    <div class="list" role="presentation" style=${{ height: `${count * height}px` }}>${rows}</div>
  </div>`;
}
