"""The beginning of an id is resolved to one id."""

from __future__ import annotations

import pytest

from perdure import user
from perdure.client.lookup.identifiers import find_question, stream_asking
from perdure.client.reads import OpenQuestion
from perdure.client.store import Store
from perdure.errors import (
    AmbiguousId,
    EntryNotFound,
    Erased,
    FlowNotFound,
    QuestionNotFound,
    SessionNotFound,
)
from perdure.session.codec import new_side
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import FlowImported
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import Question
from perdure.stores.protocol import Commit, Write

ASKED = [
    OpenQuestion(EntryId(id), 0, None, Question("approval", "May it?", ()))
    for id in ("trip/9", "trip__owner/4", "work/0:build")
]


async def test_id_search_prefers_an_existing_session_to_an_erased_session(store: Store) -> None:
    for id in ("trip-1", "trip-1.2"):
        await store.create(id=id)
    await store.erase("trip-1")
    assert await store.find("trip") == "trip-1.2"
    assert await store.find("trip-1") == "trip-1"
    with pytest.raises(Erased):
        await store.open("trip-1")


async def test_id_search_rejects_a_prefix_of_several_existing_sessions(store: Store) -> None:
    for id in ("trip-1", "trip-2", "trip-3"):
        await store.create(id=id)
    await store.erase("trip-1")
    with pytest.raises(AmbiguousId) as refused:
        await store.find("trip")
    assert refused.value.candidates == ("trip-2", "trip-3")
    with pytest.raises(SessionNotFound):
        await store.find("other")


async def test_id_search_returns_an_erased_session_if_nothing_else_matches(store: Store) -> None:
    await store.create(id="trip-1")
    await store.erase("trip-1")
    assert await store.find("trip") == "trip-1"


async def test_search_for_a_flow_id_skips_role_sessions(store: Store) -> None:
    for id in ("2026", "2026-b"):
        header = StreamHeader(StreamId(id), 1, kind="flow")
        started = new_side(FlowImported({}, Graph("g", (), ()), {}))
        write = Write(stream=header.id, create=header, entries=(started,))
        await store.backend.commit(Commit(writes=(write,), at=1))
    await store.create(id="2026-b__owner")
    assert await store.find("2026-", only="flow") == "2026-b"
    assert await store.find("2026", only="flow") == "2026"
    with pytest.raises(AmbiguousId):
        await store.find("202", only="flow")
    with pytest.raises(FlowNotFound):
        await store.find("2026-b__", only="flow")


def test_question_is_found_by_a_unique_prefix() -> None:
    assert find_question("wo", ASKED) == "work/0:build"
    assert find_question("trip/9", ASKED) == "trip/9"
    with pytest.raises(AmbiguousId):
        find_question("trip", ASKED)
    with pytest.raises(QuestionNotFound, match="no question 'x' waits here"):
        find_question("x", ASKED)


def test_question_is_found_by_session_prefix_and_whole_question_number() -> None:
    asked = [
        OpenQuestion(EntryId(id), 0, None, Question("approval", "May it?", ()))
        for id in ("trip-a/17", "work/12:build")
    ]
    assert find_question("tr/17", asked) == "trip-a/17"
    assert find_question("wo/12", asked) == "work/12:build"
    for typed in ("trip-a/1", "tr/1", "tr/7", "wo/1", "tr/"):
        with pytest.raises(QuestionNotFound):
            find_question(typed, asked)


async def test_entry_is_found_by_seq_in_a_session_and_its_fork(store: Store) -> None:
    session = await store.create(id="s")
    first, _ = await session.append(user("a"), user("b"))
    fork = await session.fork(at=first, id="f")
    await fork.append(user("c"))
    assert await session.find("1") == "s/1"
    assert (await fork.find("0"), await fork.find("\N{UPWARDS ARROW}0")) == ("f/0", "s/0")
    for unknown in ("", "9", "s/", "f/", "x"):
        with pytest.raises(EntryNotFound):
            await fork.find(unknown)


@pytest.mark.parametrize(
    ("question", "stream"),
    [("trip/9", "trip"), ("work/0:build", "work"), ("trip", None), ("trip/", None), ("/9", None)],
)
def test_complete_question_id_determines_its_session(question: str, stream: str | None) -> None:
    assert stream_asking(question) == stream
