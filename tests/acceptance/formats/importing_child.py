"""Import the file argv[2] into the store argv[1], and print entries and peak memory in bytes."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from perdure.client.open import open as open_store
from perdure.interop.imports import import_source


async def main(address: str, file: str) -> None:
    async with open_store(address, durability="normal") as store:
        outside = store.outside
        report = await import_source(
            store.backend, Path(file), clock=outside.clock, random=outside.random
        )
    sys.stdout.write(f"{report.entries} {peak_bytes()}\n")


def peak_bytes() -> int:
    """The peak memory of this program (if ``/proc`` exists, without the memory of its parent)."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
