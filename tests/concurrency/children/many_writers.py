"""One of several processes on one store.

many_writers.py append STORE NAME COUNT    appends COUNT messages with NAME and a number
many_writers.py pairs STORE NAME COUNT     like append, with two messages in each commit
many_writers.py race STORE NAME COUNT      competes for each of COUNT heads; prints its wins
many_writers.py key STORE NAME COUNT       appends COUNT commits under keys that every process uses
many_writers.py create STORE NAME COUNT    creates COUNT sessions with ids shared by every process;
                                          prints those it created
many_writers.py mixed STORE NAME COUNT     appends, and calls every read in between
many_writers.py visit STORE NAME COUNT     opens the store, appends and closes it, COUNT times
many_writers.py make STORE NAME COUNT      opens COUNT stores beside it; the first process creates
                                          each of them
many_writers.py hold STORE NAME MS         takes the lease for MS, begins a turn, prints "held", and
                                          continues its turn after a line on standard input
many_writers.py take STORE NAME MS         takes the lease for MS as soon as it is free, and closes
                                          the turn it finds open

STORE is the path of an SQLite file, or the address of a PostgreSQL database or of session files.
The process starts when it reads a line on standard input, so that all processes start together.
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
from perdure.stores.jsonl.address import open_jsonl
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Lease, Write
from perdure.stores.session_store import SessionStore
from perdure.stores.sqlite.store import SqliteStore

S = StreamId("shared")


def said(text: str) -> NewEntry:
    return new_tree(user(text))


async def opened(where: str) -> SessionStore:
    if where.startswith("postgresql:"):
        return await PostgresStore.open(where, random=system_random)
    if where.startswith("jsonl:"):
        return await open_jsonl(
            where,
            namespace="default",
            durability="normal",
            clock=SystemClock(),
            random=system_random,
        )
    return await SqliteStore.open(Path(where), clock=SystemClock(), random=system_random)


async def commit(
    store: SessionStore,
    *entries: NewEntry,
    head: int | None = None,
    lease: Lease | None = None,
    key: str | None = None,
) -> None:
    write = Write(stream=S, entries=entries, expected_head=head, lease=lease)
    await store.commit(Commit(writes=(write,), at=1, idempotency_key=key))


async def append(store: SessionStore, name: str, count: int) -> str:
    for number in range(count):
        await commit(store, said(f"{name} {number}"))
    return "done"


async def pairs(store: SessionStore, name: str, count: int) -> str:
    for number in range(count):
        await commit(store, said(f"{name} {number}"), said(f"{name} {number}"))
        assert (await store.state(S)).head >= 2 * number + 1
    return "done"


async def key(store: SessionStore, name: str, count: int) -> str:
    del name
    for number in range(count):
        await commit(store, said(f"all {number}"), key=f"key {number}")
    return "done"


async def create(store: SessionStore, name: str, count: int) -> str:
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


async def race(store: SessionStore, name: str, count: int) -> str:
    won: list[str] = []
    for head in range(-1, count - 1):
        try:
            await commit(store, said(f"{name} {head + 1}"), head=head)
        except HeadConflict:
            continue
        won.append(str(head + 1))
    return " ".join(won)


async def mixed(store: SessionStore, name: str, count: int) -> str:
    for number in range(count):
        await commit(store, said(f"{name} {number}"))
        state = await store.state(S)
        window = await store.context_window(S, state.leaf)
        assert len(window.entries) == state.head + 1
        await store.entries(S, after=state.head - 5)
        await store.sessions()
    return "done"


async def visit(store: SessionStore, name: str, count: int) -> str:
    where = store.address.removeprefix("sqlite:///")
    await store.close()
    for number in range(count):
        visited = await opened(where)
        await commit(visited, said(f"{name} {number}"))
        await visited.sessions()
        await visited.close()
    return "done"


async def make(store: SessionStore, name: str, count: int) -> str:
    del name
    for number in range(count):
        made = await opened(f"{store.address.removeprefix('sqlite:///')}.{number}")
        await made.sessions()
        await made.close()
    return "done"


async def hold(store: SessionStore, name: str, ttl_ms: int) -> str:
    lease = await store.acquire_lease(S, name, ttl_ms)
    await commit(store, new_side(TurnStarted(1, "agent")), said("begun"), lease=lease)
    say("held")
    sys.stdin.readline()
    try:
        await commit(store, said("late"), lease=lease)
    except PerdureError as error:
        return error.code
    return "not refused"


async def take(store: SessionStore, name: str, ttl_ms: int) -> str:
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


async def main(role: str, where: str, name: str, count: int) -> None:
    store = await opened(where)
    say("ready")
    sys.stdin.readline()
    work = WORK[role]
    say(await work(store, name, count))
    await store.close()


WORK = {
    "append": append,
    "pairs": pairs,
    "key": key,
    "create": create,
    "race": race,
    "mixed": mixed,
    "visit": visit,
    "make": make,
    "hold": hold,
    "take": take,
}

if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
