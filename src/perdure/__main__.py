"""The command line, as `perdure` and as `python -m perdure`."""

from __future__ import annotations

import gc
import importlib
import os
import sys

from perdure.stores.access.collector import collector_paused_to_load

INTERRUPTED = 130


def run() -> int:
    """Run the command line and return its exit code.

    Ctrl-C during startup exits without a message.
    """
    try:
        with collector_paused_to_load():
            main = importlib.import_module("perdure.apps.cli.main").main
    except KeyboardInterrupt:
        return INTERRUPTED
    code: int = main()
    if sys.argv[1:2] == ["__complete"]:
        # Completion answers a key press; releasing all modules would take a twentieth of its time.
        os._exit(code)
    gc.freeze()  # avoids a last garbage collection of all loaded objects at exit
    return code


if __name__ == "__main__":
    raise SystemExit(run())
