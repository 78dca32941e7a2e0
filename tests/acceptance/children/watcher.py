"""Prints the seq of each event of a session after argument 3, one per line, up to argument 4."""

from __future__ import annotations

import asyncio
import sys

import perdure


async def main(address: str, session: str, after: int, last: int) -> None:
    """Watch."""
    async with perdure.open(address) as store:
        watch = (await store.open(session)).watch(after=after)
        async for _ in watch:
            sys.stdout.write(str(watch.cursor) + "\n")
            sys.stdout.flush()
            if watch.cursor.after == last:
                return


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
