"""A followed turn reads its log only when the log might have new entries, and misses none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import perdure
from perdure import Agent, Runtime, Store, user
from perdure.client.agents.chat import Chat
from perdure.client.agents.runners import answering
from perdure.client.requests.followed_turn import FollowedTurn
from perdure.engine.turns.session_turns import Signals
from perdure.session.codec import new_side
from perdure.session.ledger import TurnRequested
from perdure.stores.protocol import Commit, Write

AGENT = Agent("helper", model="scripted:echo")
STEPS = 10
"""More steps of the event loop than a read of a store in memory takes."""


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with perdure.open("memory:") as opened:
        yield opened


async def requested(store: Store, chat: Chat) -> int:
    write = Write(stream=chat.id, entries=(new_side(TurnRequested(user("hi"))),))
    ((request,),) = (await store.backend.commit(Commit(writes=(write,), at=1))).entries
    return request.seq


def followed(chat: Chat, request: int) -> FollowedTurn:
    environment = chat._running.environment  # pyright: ignore[reportPrivateUsage] - runners follow with it
    return FollowedTurn(environment, Signals(), request=request)


async def steps() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)


async def test_followed_turn_reads_the_log_only_after_new_commits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, reads = store.backend.entries, 0

    async def counting(*args: Any, **kwargs: Any) -> Any:
        nonlocal reads
        reads += 1
        return await entries(*args, **kwargs)

    async with Runtime(store, [AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        turn = followed(chat, await requested(store, chat))
        monkeypatch.setattr(store.backend, "entries", counting)
        ending = asyncio.ensure_future(turn.ended())
        await steps()
        assert (reads, ending.done()) == (1, False)
        ending.cancel()


async def test_followed_turn_can_be_awaited_again_after_cancellation(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Runtime(store, [AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        request = await requested(store, chat)
        with answering(chat.id, request):
            await chat.send("hi")
        turn = followed(chat, request)

        async def never(*args: Any, **kwargs: Any) -> Any:
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(store.backend, "entries", never)
            ending = asyncio.ensure_future(turn.ended())
            await steps()
            ending.cancel()
            await asyncio.wait((ending,))
        async with asyncio.timeout(60):
            assert (await turn.ended()).finished is not None
