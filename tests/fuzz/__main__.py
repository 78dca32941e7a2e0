"""`python -m tests.fuzz FORMAT --seconds N [--seed S]`: an importer against mutated real lines.

FORMAT is one of the import formats, or ``all``. In one of `MEASURED_EACH` cases, the run measures
memory in addition. Every case depends on its seed alone. A failure prints the seed and the path of
the failed file, and ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.checking import check
from tests.fuzz.corpus import FORMATS, corpus
from tests.fuzz.memory import check_memory
from tests.fuzz.mutation import mutated

HANGS_AFTER_S = 300
MEASURED_EACH = 25

MEMORY_FACTOR = 150
"""Limit of a case's memory per byte of its file; it includes parsed values, store and exports."""

MEMORY_FLOOR_BYTES = 300_000_000
"""The memory of the process before it checks a case: modules, the corpus, an empty store."""


def main() -> int:
    """Run the fuzzers that the arguments select."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("format", choices=[*FORMATS, "all"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    formats: list[str] = list(FORMATS) if asked.format == "all" else [asked.format]
    return max(_run(each, asked.seconds, asked.seed) for each in formats)


def _run(format: str, seconds: float, first: int) -> int:
    files = corpus(format)
    at = Path(tempfile.mkdtemp(prefix="perdure-fuzz-")) / "seed"
    sys.stderr.write(f"{format}: {at} holds the seed of the case under way, should it hang\n")
    began, count, size, largest, measured = time.monotonic(), 0, 0, 0, 0
    while time.monotonic() - began < seconds:
        seed = first + count
        content = mutated(files, seed)
        at.write_text(str(seed))
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        try:
            asyncio.run(check(content, seed))
            if seed % MEASURED_EACH == 0:
                asyncio.run(check_memory(content))
                measured += 1
        except Exception:  # whatever it is, the case is what we are here for
            kept = Path(tempfile.mkdtemp(prefix="perdure-fuzz-")) / f"{format}-{seed}.jsonl"
            kept.write_bytes(content)
            sys.stderr.write(f"{format}: seed {seed} failed; the file is {kept}\n")
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
        count, size = count + 1, size + len(content)
        largest = max(largest, len(content))
        _check_memory(format, seed, largest)
    took = time.monotonic() - began
    sys.stdout.write(
        f"{format}: {count} files, {size / 1e6:.1f} MB in {took:.0f} s, no failure; "
        f"largest {largest / 1e6:.1f} MB, most memory {_peak_bytes() / 1e6:.0f} MB, "
        f"{measured} measured against their lines\n"
    )
    return 0


def _check_memory(format: str, seed: int, largest: int) -> None:
    peak = _peak_bytes()
    if peak > MEMORY_FLOOR_BYTES + MEMORY_FACTOR * largest:
        raise MemoryError(f"{format}: seed {seed} took the process to {peak / 1e6:.0f} MB")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
