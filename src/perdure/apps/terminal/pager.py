"""Shows long output in the user's pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable

from perdure.apps.terminal.output import printable, show_lines

_PAGER = "less -FRX"
"""With these options, ``less`` exits if the text fits on the screen, and keeps text and colours."""


def show_in_pager(lines: Iterable[str]) -> None:
    """Write `lines` to $PAGER or less; if stdout is no terminal, write them to stdout.

    Raises: OutputClosed.
    """
    words = shlex.split(os.environ.get("PAGER") or _PAGER)
    program = shutil.which(words[0]) if words and sys.stdout.isatty() else None
    if program is None:
        show_lines(lines)
        return
    text = "".join(f"{printable(line)}\n" for line in lines)
    sys.stdout.flush()
    subprocess.run(  # noqa: S603 - the user's own $PAGER, or less
        [program, *words[1:]], input=text.encode(errors="replace"), check=False
    )
