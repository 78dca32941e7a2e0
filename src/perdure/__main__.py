"""The command line, as `perdure` and as `python -m perdure`."""

from __future__ import annotations

import gc
import importlib

from perdure.stores.access.collector import collector_paused

INTERRUPTED = 130


def run() -> int:
    """Run the command line and return its exit code. Ctrl-C during startup exits quietly too."""
    try:
        with collector_paused():
            main = importlib.import_module("perdure.apps.cli.main").main
    except KeyboardInterrupt:
        return INTERRUPTED
    code: int = main()
    gc.freeze()  # avoids a last garbage collection of all loaded objects at exit
    return code


if __name__ == "__main__":
    raise SystemExit(run())
