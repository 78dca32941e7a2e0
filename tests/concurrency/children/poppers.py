"""One of several processes that push to and pop from one session.

poppers.py push ADDRESS NAME COUNT         appends COUNT messages; prints the ids of its entries
poppers.py pop ADDRESS NAME COUNT          takes COUNT entries from the end; prints their ids
poppers.py blind ADDRESS NAME COUNT        like pop, without `expected_leaf`
poppers.py same ADDRESS NAME COUNT         like pop, and sends each pop twice with one key

The process begins when a line comes on standard input, so that all processes begin together.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import msgspec

import perdure
from perdure import user
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import LeafConflict

S = "shared"


async def push(session: Session, name: str, count: int) -> list[str]:
    """Append `count` messages; return the ids of the acknowledged entries."""
    return [(await session.append(user(f"{name} {number}"))).id for number in range(count)]


async def pop(session: Session, name: str, count: int, *, is_blind: bool = False) -> list[str]:
    """Take `count` entries from the end of the conversation, retrying after conflicts."""
    taken: list[str] = []
    while len(taken) < count:
        last = (await session.path())[-1:]
        if not last:
            break
        expected = msgspec.UNSET if is_blind else last[0]
        await asyncio.sleep(0)
        try:
            await session.branch(last[0].parent_id, expected_leaf=expected)
        except LeafConflict:
            continue
        taken.append(last[0].id)
    return taken


async def pop_twice(session: Session, name: str, count: int) -> list[str]:
    """Like `pop`, but send each call twice under one key, as after a lost answer."""
    taken: list[str] = []
    while len(taken) < count:
        (last,) = (await session.path())[-1:]
        key = f"{name} {len(taken)} {last.id}"
        try:
            first, again = [
                await session.branch(last.parent_id, expected_leaf=last, idempotency_key=key)
                for _ in range(2)
            ]
        except LeafConflict:
            continue
        assert first is not None
        assert first == again
        taken.append(last.id)
    return taken


async def work(store: Store, role: str, name: str, count: int) -> list[str]:
    """Do the work of `role` in `store`."""
    session = await store.open(S)
    if role == "push":
        return await push(session, name, count)
    if role == "same":
        return await pop_twice(session, name, count)
    return await pop(session, name, count, is_blind=role == "blind")


async def main(role: str, address: str, name: str, count: int) -> None:
    async with perdure.open(address, durability="normal") as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        sys.stdout.write(" ".join(await work(store, role, name, count)) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
