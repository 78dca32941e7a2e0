"""`python -m tests.fuzz FORMAT --seconds N [--seed S]`: an importer against mutated real lines.

FORMAT is one of the formats read, or ``all``. Every case follows from its seed alone: a failure
prints it, and where the file is that failed, and ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.checking import check
from tests.fuzz.corpus import FORMATS, corpus
from tests.fuzz.mutation import mutated

HANGS_AFTER_S = 60


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("format", choices=[*FORMATS, "all"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    formats: list[str] = list(FORMATS) if asked.format == "all" else [asked.format]
    return max(_run(each, asked.seconds, asked.seed) for each in formats)


def _run(format: str, seconds: float, first: int) -> int:
    files = corpus(format)
    began, count, size = time.monotonic(), 0, 0
    while time.monotonic() - began < seconds:
        seed = first + count
        content = mutated(files, seed)
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        try:
            asyncio.run(check(content, seed))
        except Exception:  # whatever it is, the case is what we are here for
            kept = Path(tempfile.mkdtemp(prefix="perdure-fuzz-")) / f"{format}-{seed}.jsonl"
            kept.write_bytes(content)
            sys.stderr.write(f"{format}: seed {seed} failed; the file is {kept}\n")
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
        count, size = count + 1, size + len(content)
    took = time.monotonic() - began
    sys.stdout.write(f"{format}: {count} files, {size / 1e6:.1f} MB in {took:.0f} s, no failure\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
