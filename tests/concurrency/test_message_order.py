"""Messages are stored in the order of one process's calls, however fast they follow.

$PERDURE_ORDER_ROUNDS sets the number of rounds for each kind of store and of calls.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import perdure
from perdure.client.agents.chat import Chat
from perdure.errors import InvalidTransition
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, StreamEnd, TextDelta
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.messages import Message, Usage, decode_message
from perdure.session.notes import Queued
from tests.fakes.postgres import PostgresServer
from tests.fakes.samples import with_larger

ROUNDS = pytest.mark.parametrize(
    "rounds", with_larger(5, int(os.environ.get("PERDURE_ORDER_ROUNDS", "25")))
)
STORES = ["memory", "sqlite", "jsonl", "postgres"]
AGENT = perdure.Agent("helper", model="p:m")
CALLS = ("send", "steer", "follow_up", "steer", "follow_up")
ORDERS = sorted(set(itertools.permutations(CALLS)))
CHANCE = random.Random(0 if "CI" in os.environ else None)
"""CI draws the same numbers each time: it checks a change and does not search for faults."""


class Gate:
    """A model that answers once `is_open` is set; any thread can set it."""

    is_open = False

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        while not self.is_open:  # noqa: ASYNC110 - set from other threads, which no Event may be
            await asyncio.sleep(0.0005)
        yield TextDelta("ok")
        yield StreamEnd("stop", Usage(1, 1))


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty store."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("warm_postgres")
        taken = server.take()
        yield taken
        server.give_back(taken)
        return
    where = {
        "memory": "memory:",
        "sqlite": f"sqlite:///{tmp_path / 's.db'}",
        "jsonl": f"jsonl:///{tmp_path / 's'}",
    }
    yield where[request.param]


def orders(rounds: int) -> Iterable[Sequence[str]]:
    """Return the order of the calls for each round: all possible orders, repeatedly."""
    return itertools.islice(itertools.cycle(CHANCE.sample(ORDERS, len(ORDERS))), rounds)


def expected(calls: Sequence[str]) -> list[str]:
    """Return the messages that `calls` must store: all except follow-ups before the first send."""
    said = [f"{n} {call}" for n, call in enumerate(calls)]
    begun = calls.index("send")
    return [words for n, words in enumerate(said) if n >= begun or "follow_up" not in words]


def said_in(entries: Iterable[Entry]) -> list[str]:
    """Return the user texts in the order in which they were first stored."""
    found: list[str] = []
    for entry in entries:
        body = body_of(entry)
        if isinstance(body, Queued):
            body = decode_message(bytes(body.entry_body))
        if isinstance(body, Message) and body.role == "user":
            found.append(body.text)
    return list(dict.fromkeys(found))


async def call(chat: Chat, name: str, words: str) -> None:
    if name == "send":
        chat.send(words)
    elif name == "steer":
        await chat.steer(words)
    else:
        with suppress(InvalidTransition):  # before the turn; `expected` leaves it out
            await chat.follow_up(words)


@pytest.mark.parametrize("is_awaited", [True, False], ids=["awaited", "at-once"])
@ROUNDS
async def test_messages_are_stored_in_call_order(
    address: str, is_awaited: bool, rounds: int
) -> None:
    gate = Gate()
    async with (
        perdure.open(address, durability="normal") as store,
        perdure.Runtime(store, [AGENT], models=gate) as runtime,
    ):
        for calls in orders(rounds):
            gate.is_open = False
            chat = await runtime.start(AGENT)
            made = [call(chat, name, f"{n} {name}") for n, name in enumerate(calls)]
            if is_awaited:
                for each in made:
                    await each
            else:
                await asyncio.gather(*made)
            gate.is_open = True
            assert chat.turn is not None
            assert (await chat.turn).text == "ok"
            entries = [entry async for entry in chat.session.entries()]
            assert said_in(entries) == expected(calls), calls


@ROUNDS
def test_messages_of_the_blocking_interface_are_stored_in_call_order(
    address: str, rounds: int
) -> None:
    gate = Gate()
    with (
        perdure.blocking.open(address, durability="normal") as store,
        perdure.blocking.Runtime(store, [AGENT], models=gate) as runtime,
    ):
        for calls in orders(rounds):
            gate.is_open = False
            chat = runtime.start(AGENT)
            for n, name in enumerate(calls):
                with suppress(InvalidTransition):
                    getattr(chat, name)(f"{n} {name}")
            gate.is_open = True
            assert chat.turn is not None
            assert chat.turn.result().text == "ok"
            assert said_in(chat.session.entries()) == expected(calls), calls


async def test_session_stores_messages_of_several_chats_in_call_order(
    tmp_path: Path,
) -> None:
    gate = Gate()
    async with (
        perdure.open(f"sqlite:///{tmp_path / 's.db'}", durability="normal") as store,
        perdure.Runtime(store, [AGENT], models=gate) as runtime,
    ):
        chat = await runtime.start(AGENT, id="s")
        other = await runtime.resume("s")
        turn = chat.send("one")
        await other.steer("two")
        await other.follow_up("three")
        gate.is_open = True
        await turn
        entries = [entry async for entry in chat.session.entries()]
        assert said_in(entries) == ["one", "two", "three"]


def sizes_of_round() -> list[int]:
    """Return message sizes in random order; some are large enough to use a thread."""
    return CHANCE.sample([1, 1, 70_000, 200_000, 1_200_000, 1, 200_000, 1, 1], 9)


async def test_concurrent_appends_are_stored_in_the_order_of_the_calls(address: str) -> None:
    async with perdure.open(address, durability="normal") as store:
        session = await store.create()
        root = await session.append(perdure.user("root"))
        media = perdure.user("picture", perdure.media(b"\x89PNG", "image/png"))
        for _ in range(4):
            before = session.head
            said = [f"{n} " + "x" * size for n, size in enumerate(sizes_of_round())]
            calls = [session.append(perdure.user(words)) for words in said]
            calls[4:4] = [session.append(media), session.append(perdure.user("b"), parent=root)]
            said[4:4] = ["picture", "b"]
            await asyncio.gather(*calls, session.rename("after all"))
            entries = [entry async for entry in session.entries(after=before)]
            assert said_in(entries) == said
            assert entries[-1].kind == "session_info"


async def test_first_appends_of_opened_store_keep_call_order(
    tmp_path: Path,
) -> None:
    for scheme in ("sqlite", "jsonl"):
        address = f"{scheme}:///{tmp_path / scheme}"
        async with perdure.open(address) as store:
            session = (await store.create()).id
        said: list[str] = []
        for n in range(10):
            async with perdure.open(address, durability="normal") as store:
                opened = await store.open(session)
                now = [f"{n}.{m}" for m in range(6)]
                await asyncio.gather(*(opened.append(perdure.user(words)) for words in now))
                said += now
                assert said_in([entry async for entry in opened.entries()]) == said
