"""plant.py PATH committed|writing WORD: fill an encrypted store, then die; the key is on stdin.

With ``committed``, the process dies after everything is committed. With ``writing``, the process
dies at its five hundredth write, in a transaction too large for the cache.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from perdure.session.codec import new_tree
from perdure.session.messages import user
from perdure.stores.key import StoreKey
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.faulty_vfs import faulty_vfs, killing_at
from tests.fakes.planted import FIRST, plant


async def main(path: Path, moment: str, word: str) -> None:
    key = StoreKey.of(sys.stdin.read().strip())
    store = await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1), key=key)
    await plant(store, word)
    if moment == "committed":
        os.kill(os.getpid(), signal.SIGKILL)
    with faulty_vfs() as layer:
        other = path.with_name("other.db")
        large = await SqliteStore.open(other, clock=ManualClock(), random=SeededRandom(2), key=key)
        await plant(large, word)
        layer.plan = killing_at(500)
        texts = (word + os.urandom(500_000).hex() for _ in range(20))
        write = Write(stream=FIRST, entries=tuple(new_tree(user(text)) for text in texts))
        await large.commit(Commit(writes=(write,), at=START_MS))


asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
