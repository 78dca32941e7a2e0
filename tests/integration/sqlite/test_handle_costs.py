"""Public calls run equally few statements and decode equally few bodies at any log length."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.client.conversation import append
from perdure.session.messages import Message, assistant, decode_message, user
from perdure.stores import validation

SIZES = (60, 2_060)
NEWEST = 50
TURN = (user("one"), assistant("two"), user("three"), assistant("four"))
MOST_OF_APPEND = 9
"""Statements of an append: BEGIN, four entries, the commit, its trigger, the stream, COMMIT."""

MOST_OF_NEWEST = 7
"""Statements of two snapshots: the session; the session again with its newest entries."""

Act = Callable[[], Awaitable[object]]


class Statements:
    """The statements that the connections of a store run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def hook(self, db: Any) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_STMT, self._note)

    def _note(self, event: dict[str, Any]) -> None:
        self.ran.append(" ".join(event["sql"].split()[:6]))

    async def of(self, act: Act) -> list[str]:
        """Return the statements of one call: the fewest of eight calls.

        The first call in a thread runs additional statements.
        """
        found: list[list[str]] = []
        for _ in range(8):
            self.ran.clear()
            await act()
            found.append(list(self.ran))
        return min(found, key=len)


@pytest.fixture
def statements() -> Iterator[Statements]:
    found = Statements()
    apsw.connection_hooks.append(found.hook)
    yield found
    apsw.connection_hooks.remove(found.hook)


async def filled(store: perdure.Store, size: int) -> perdure.Session:
    session = await store.create(id="s")
    for first in range(0, size, 500):
        numbers = range(first, min(size, first + 500))
        await session.append_many([user(f"number {number}") for number in numbers])
    return session


async def newest(store: perdure.Store) -> list[Message]:
    return await (await store.open("s")).messages(last=NEWEST)


async def test_append_runs_equally_few_statements_in_a_longer_log(
    tmp_path: Path, statements: Statements
) -> None:
    found: list[list[str]] = []
    for size in SIZES:
        async with perdure.open(f"sqlite:///{tmp_path}/{size}.db", durability="normal") as store:
            session = await filled(store, size)
            found.append(await statements.of(partial(session.append_many, TURN)))
    few, many = found
    assert few == many
    assert few.count("COMMIT") == 1
    assert len(few) <= MOST_OF_APPEND, few


async def test_newest_messages_are_read_with_equally_few_statements_in_a_longer_log(
    tmp_path: Path, statements: Statements
) -> None:
    found: list[list[str]] = []
    for size in SIZES:
        async with perdure.open(f"sqlite:///{tmp_path}/{size}.db", durability="normal") as store:
            await filled(store, size)
            assert len(await newest(store)) == NEWEST
            found.append(await statements.of(partial(newest, store)))
    few, many = found
    assert few == many
    assert len(few) <= MOST_OF_NEWEST, few


async def test_append_decodes_each_entry_body_twice_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []

    def counted(body: bytes) -> Message:
        decoded.append(body)
        return decode_message(body)

    for module in (append, validation):
        monkeypatch.setattr(module, "decode_message", counted)
    async with perdure.open(f"sqlite:///{tmp_path}/a.db", durability="normal") as store:
        session = await store.create()
        await session.append_many(TURN)
        decoded.clear()
        await session.append_many(TURN)
    assert len(decoded) == 2 * len(TURN)
