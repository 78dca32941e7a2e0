"""Requests for turns: run once, rejected with a reason, or stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import perdure
from perdure import Agent, Runtime, Store, user
from perdure.client.agents.chat import Chat
from perdure.client.agents.runners import answering
from perdure.engine.turns.requests import (
    FEW,
    OpenRequest,
    break_turn,
    closing_entry,
    open_request,
    refuse_request,
    requested_stop,
    require_open,
)
from perdure.errors import RequestAnswered
from perdure.session.codec import new_side
from perdure.session.ids import entry_id
from perdure.session.ledger import TurnRefused, TurnRequested, TurnStarted, TurnStopRequested
from perdure.session.notes import SideBody
from perdure.stores.protocol import Commit, Write

AGENT = Agent("helper", model="scripted:echo")
SAID = user("hello")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with perdure.open("memory:") as opened:
        yield opened


async def append(chat: Chat, store: Store, body: SideBody, about: int | None = None) -> int:
    named = None if about is None else entry_id(chat.id, about)
    write = Write(stream=chat.id, entries=(new_side(body, named),))
    committed = await store.backend.commit(Commit(writes=(write,), at=1))
    return committed.entries[0][0].seq


async def read_request(store: Store, chat: Chat, request: int) -> OpenRequest | None:
    """Return the open request; check that a page of newest entries gives the same request."""
    found = await open_request(store.backend, chat.id, request)
    _, page, _ = await store.backend.tail(chat.id, FEW)
    assert await open_request(store.backend, chat.id, request, page) == found
    return found


async def test_request_is_answered_by_one_turn(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        request = await append(chat, store, TurnRequested(SAID))
        assert [each.seq for each in await store.backend.open_of_all("turn_requested")] == [request]
        with answering(chat.id, request):
            turn = chat.send(SAID)
        assert "hello" in (await turn).text
        closing = await closing_entry(store.backend, chat.id, request)
        assert closing is not None
        assert closing.kind == TurnStarted.kind
        assert await store.backend.open_of_all("turn_requested") == []
        with answering(chat.id, request):
            again = chat.send(SAID)
        with pytest.raises(RequestAnswered):
            await again


async def test_rejected_request_is_closed_with_its_reason(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        request = await append(chat, store, TurnRequested(SAID))
        await require_open(store.backend, chat.id, request, ())
        for _ in range(2):  # the second time changes nothing
            await refuse_request(runtime.host.claim(chat.id), request, "config", "no agent")
        refusals = [each async for each in chat.session.entries(kind=TurnRefused.kind)]
        assert [each.about for each in refusals] == [entry_id(chat.id, request)]
        with pytest.raises(RequestAnswered):
            await require_open(store.backend, chat.id, request, ())


@pytest.mark.parametrize("has_page", [False, True])
async def test_stopped_or_erased_request_is_not_open(store: Store, has_page: bool) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        stopped = await append(chat, store, TurnRequested(SAID))
        erased = await append(chat, store, TurnRequested(SAID))
        await append(chat, store, TurnStopRequested(), about=stopped)
        await chat.session.erase_entries([entry_id(chat.id, erased)], by="me")
        page = (await store.backend.tail(chat.id, 64))[1] if has_page else []
        for request in (stopped, erased):
            with pytest.raises(RequestAnswered):
                await require_open(store.backend, chat.id, request, page)


async def test_erased_turn_request_begins_no_turn(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        request = await append(chat, store, TurnRequested(SAID))
        await chat.session.erase_entries([entry_id(chat.id, request)], by="me")
        with answering(chat.id, request):
            turn = chat.send(SAID)
        with pytest.raises(RequestAnswered):
            await turn
        assert [each async for each in chat.session.entries(kind=TurnStarted.kind)] == []


async def test_stop_request_applies_only_to_its_turn_request(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        other = await append(chat, store, TurnRequested(SAID))
        request = await append(chat, store, TurnRequested(SAID))
        turn = request + 5
        await append(chat, store, TurnStopRequested(), about=other)
        assert await requested_stop(store.backend, chat.id, turn, request) is None
        await append(chat, store, TurnStopRequested(), about=request)
        assert await requested_stop(store.backend, chat.id, turn, request) == TurnStopRequested()


@pytest.mark.parametrize("between", [0, 30, 31, 32, 33, 80])
async def test_open_turn_request_is_found_at_any_distance_from_the_head(
    store: Store, between: int
) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        request = await append(chat, store, TurnRequested(SAID))
        for _ in range(between):
            await append(chat, store, TurnRequested(SAID))
        found = await read_request(store, chat, request)
        assert found is not None
        assert (found.entry.seq, found.stop) == (request, None)
        if between:  # of another request
            await append(chat, store, TurnStopRequested(), about=request + between)
        await append(chat, store, TurnStopRequested(is_cancel=True), about=request)
        found = await read_request(store, chat, request)
        assert found is not None
        assert found.stop == TurnStopRequested(is_cancel=True)
        assert await closing_entry(store.backend, chat.id, request) is None
        await refuse_request(runtime.host.claim(chat.id), request, "config", "no agent")
        assert await read_request(store, chat, request) is None
        assert await closing_entry(store.backend, chat.id, request) is not None
        if between:
            assert await read_request(store, chat, request + 1) is not None


async def test_breaking_a_turn_changes_nothing_in_an_idle_session(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        before = (await store.backend.state(chat.id)).head
        await break_turn(runtime.host.claim(chat.id), "three workers died")
        assert (await store.backend.state(chat.id)).head == before
