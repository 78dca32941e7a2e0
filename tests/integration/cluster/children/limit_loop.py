"""A process that uses the limits of a cluster in a loop, until it is killed.

limit_loop.py ADDRESS slots|places|permits [SUBJECT ...]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import perdure
from perdure.client.cluster.runner import cluster_of
from perdure.errors import QueueFull
from perdure.stores.cluster.limits import LimitService, Slot


async def use(limits: LimitService, what: str, subjects: Sequence[str], number: int) -> None:
    """Request one slot or 120 slots, or take and release a place, or request a permit."""
    if what == "slots":
        slots = [
            Slot(f"busy{number % 3}-{n}", "busy", tuple(subjects), False)
            for n in range((1, 120)[number % 2])
        ]
        await limits.sync_slots("busy", slots)
    elif what == "places":
        with suppress(QueueFull):
            async with limits.room():
                pass
    else:
        wait_s = await limits.permit_request(subjects)
        await asyncio.sleep(min(wait_s, 0.01))


async def main(address: str, what: str, *subjects: str) -> None:
    async with perdure.open(address) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for number in count():
            await use(cluster_of(store.backend).limits, what, subjects, number)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
