"""The command line, as `perdure` and as `python -m perdure`."""

from __future__ import annotations

import importlib

INTERRUPTED = 130


def run() -> int:
    """Run the command line; the exit code. Ctrl-C while it is being loaded ends it quietly too."""
    try:
        main = importlib.import_module("perdure.apps.cli.main").main
    except KeyboardInterrupt:
        return INTERRUPTED
    code: int = main()
    return code


if __name__ == "__main__":
    raise SystemExit(run())
