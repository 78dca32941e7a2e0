// Elements are written with `html`; hooks come from here, so that no other module names a library.
import { h } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export { render } from "./vendor/preact.mjs";
export {
  useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
} from "./vendor/hooks.mjs";
export const html = htm.bind(h);
