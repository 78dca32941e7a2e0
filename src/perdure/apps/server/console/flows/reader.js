// Reading again after changes, never twice at once: changes during a read cause one more read.
import { useEffect, useRef } from "../html.js";

/** Runs `read(isOver)` for new `keys`, and again when `version` changes. `fail` gets its error. */
export function useReader(read, fail, keys, version) {
  const latest = useRef(read);
  const run = useRef(null);
  latest.current = read;
  useEffect(() => {
    const now = { isOver: false, isReading: false, isDue: false };
    run.current = now;
    return () => { now.isOver = true; };
  }, keys);
  useEffect(() => {
    const now = run.current;
    now.isDue = true;
    if (now.isReading) return;
    now.isReading = true;
    (async () => {
      while (now.isDue && !now.isOver) {
        now.isDue = false;
        await latest.current(() => now.isOver).catch((error) => now.isOver || fail(error));
      }
      now.isReading = false;
    })();
  }, [...keys, version]);
}
