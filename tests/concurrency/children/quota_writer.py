"""One of several processes that fill a namespace with a quota.

quota_writer.py fill ADDRESS NAME COUNT    tries COUNT commits of two entries, each to a session of
                                           its own or to the shared one, some with a content that
                                           others have too; prints how many were stored

The process starts when it reads a line on standard input, and prints "kept" after each stored
commit.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from perdure.client.open import open as open_store
from perdure.client.store import Store
from perdure.errors import QuotaExceeded
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.messages import MediaPart, user
from perdure.stores.protocol import Commit, Write

S = StreamId("shared")


def commit_of(name: str, number: int) -> Commit:
    """Return a commit; every third one creates a session, every fourth one has a shared content."""
    stream = StreamId(f"{name}-{number}") if number % 3 == 0 else S
    content = b"content %d " % number * 50 if number % 4 == 0 else None
    shown = ()
    if content is not None:
        shown = (MediaPart("image/png", f"media://{blob_hash(content)}", len(content)),)
    texts = (new_tree(user(f"{name} {number}", *shown)), new_tree(user("again")))
    create = None if stream == S else StreamHeader(stream, 1)
    write = Write(stream=stream, entries=texts, create=create)
    return Commit(writes=(write,), at=1, blobs=() if content is None else (content,))


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def fill(store: Store, name: str, count: int) -> int:
    kept = 0
    for number in range(count):
        try:
            await store.backend.commit(commit_of(name, number))
        except QuotaExceeded:
            continue
        kept += 1
        tell("kept")
    return kept


async def main(address: str, name: str, count: int) -> None:
    async with open_store(address) as store:
        tell("ready")
        await asyncio.to_thread(sys.stdin.readline)
        tell(str(await fill(store, name, count)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[2], sys.argv[3], int(sys.argv[4])))
