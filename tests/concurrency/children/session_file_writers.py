"""One of several processes on one folder of session files.

session_file_writers.py append FOLDER DIALECT NAME COUNT  appends COUNT commits of two entries
session_file_writers.py race FOLDER DIALECT NAME COUNT    tries to be first at each of COUNT heads;
                                                          prints its wins
session_file_writers.py key FOLDER DIALECT NAME COUNT     appends COUNT commits under keys that
                                                          every process uses
session_file_writers.py create FOLDER DIALECT NAME COUNT  makes COUNT sessions whose ids every
                                                          process uses; prints those it made
session_file_writers.py hold FOLDER DIALECT NAME MS       takes the lease, begins a turn, says
                                                          "held", waits for a line, goes on with it
session_file_writers.py take FOLDER DIALECT NAME MS       takes the lease as soon as nobody holds it
                                                          and gives up the turn it finds open

It begins when a line comes on standard input, so that all begin together.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from perdure.client.clock import SystemClock, system_random
from perdure.errors import HeadConflict, LeaseHeld, PerdureError, SessionExists
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import user
from perdure.stores.jsonl.store import JsonlStore
from perdure.stores.protocol import Commit, Lease, Write

S = StreamId("shared")


def said(text: str) -> NewEntry:
    return new_tree(user(text))


async def commit(
    store: JsonlStore,
    *entries: NewEntry,
    head: int | None = None,
    lease: Lease | None = None,
    key: str | None = None,
) -> None:
    write = Write(stream=S, entries=entries, expected_head=head, lease=lease)
    await store.commit(Commit(writes=(write,), at=1, idempotency_key=key))


async def append(store: JsonlStore, name: str, count: int) -> str:
    for number in range(count):
        await commit(store, said(f"{name} {number}"), said(f"{name} {number}"))
        assert (await store.state(S)).head >= 2 * number + 1
    return "done"


async def race(store: JsonlStore, name: str, count: int) -> str:
    won: list[str] = []
    for head in range(-1, count - 1):
        try:
            await commit(store, said(f"{name} {head + 1}"), head=head)
        except HeadConflict:
            continue
        won.append(str(head + 1))
    return " ".join(won)


async def key(store: JsonlStore, name: str, count: int) -> str:
    del name
    for number in range(count):
        await commit(store, said(f"all {number}"), key=f"key {number}")
    return "done"


async def create(store: JsonlStore, name: str, count: int) -> str:
    made: list[str] = []
    for number in range(count):
        new = StreamHeader(StreamId(f"new{number}"), 1)
        write = Write(stream=new.id, create=new, entries=(said(name),))
        try:
            await store.commit(Commit(writes=(write,), at=1))
        except SessionExists:
            continue
        made.append(new.id)
    return " ".join(made)


async def hold(store: JsonlStore, name: str, ttl_ms: int) -> str:
    lease = await store.acquire_lease(S, name, ttl_ms)
    await commit(store, new_side(TurnStarted(1, "agent")), said("begun"), lease=lease)
    say("held")
    sys.stdin.readline()
    try:
        await commit(store, said("late"), lease=lease)
    except PerdureError as error:
        return error.code
    return "not refused"


async def take(store: JsonlStore, name: str, ttl_ms: int) -> str:
    clock = SystemClock()
    while True:
        try:
            lease = await store.acquire_lease(S, name, ttl_ms)
        except LeaseHeld as held:
            await clock.sleep((held.until - clock.now_ms()) / 1000)
        else:
            await commit(store, new_side(TurnFinished("interrupted")), lease=lease)
            return f"epoch {lease.epoch}"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(role: str, folder: Path, dialect: str, name: str, count: int) -> None:
    store = await JsonlStore.open(
        folder,
        dialect="pi" if dialect == "pi" else "operator",
        durability="normal",
        clock=SystemClock(),
        random=system_random,
    )
    say("ready")
    sys.stdin.readline()
    roles = {"append": append, "race": race, "key": key, "create": create}
    say(await (roles | {"hold": hold, "take": take})[role](store, name, count))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])))
