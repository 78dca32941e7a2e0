"""Progress of long operations, shown on stderr if it is a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

from perdure.apps.terminal.text import safe

STEP_S = 0.1
_BAR_CELLS = 30


def progress_bar(name: str) -> Callable[[int, int], None]:
    """Return a callback that shows a progress bar `name` on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return untold
    shown_at = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if done < total and now - shown_at < STEP_S:
            return
        shown_at = now
        end = "\r\033[K" if done >= total else ""
        sys.stderr.write(f"\r{safe(line(name, done, total))}{end}")
        sys.stderr.flush()

    return tell


def line(name: str, done: int, total: int) -> str:
    """Return the text of the bar `name` when `done` of `total` units are done."""
    share = min(1.0, done / total) if total else 1.0
    cells = min(_BAR_CELLS, max(5, shutil.get_terminal_size().columns - len(name) - 30))
    full = int(share * cells)
    return f"{name} [{'#' * full}{'.' * (cells - full)}] {int(100 * share):3} % of {total}"


def untold(_done: int, _total: int) -> None:
    """Ignore progress."""
