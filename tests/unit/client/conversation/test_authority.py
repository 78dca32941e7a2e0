"""Which agents and turns of a session are trusted: own, marked, imported and forked ones."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.client.conversation.authority import Authority, authority_of
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.messages import user
from perdure.session.notes import AgentBound, Answer, Question, SessionReceived
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.marks import TRUSTED
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import ManualClock, SeededRandom
from tests.unit.stores.test_marks import OTHER, OWN, STARTED, S, begun, store_with


async def appended(store: MemoryStore, *entries: NewEntry) -> None:
    await store.commit(Commit(writes=(Write(stream=S, entries=entries),), at=1))


async def created(store: MemoryStore, header: StreamHeader, *entries: NewEntry) -> None:
    write = Write(stream=header.id, create=header, entries=entries)
    await store.commit(Commit(writes=(write,), at=1))


async def test_agent_of_a_session_begun_in_this_store_is_trusted() -> None:
    for marks in (OWN, OTHER, TRUSTED):
        store = store_with(marks)
        await begun(store)
        assert await authority_of(store, S) == Authority(STARTED)


async def test_agent_of_a_session_of_another_user_is_not_trusted() -> None:
    store = store_with(OTHER)
    await begun(store)
    store.marks = OWN
    known = await authority_of(store, S)
    assert known == Authority(STARTED, "unknown", "unknown")
    assert known.withheld == "unknown"


async def test_agent_that_another_user_set_later_is_not_trusted() -> None:
    store = store_with(OWN)
    await begun(store)
    store.marks = OTHER
    await appended(store, new_side(AgentBound({"id": "theirs"})))
    store.marks = OWN
    assert (await authority_of(store, S)).agent == "unknown"


async def test_turn_with_an_answer_of_another_user_is_not_trusted() -> None:
    store = store_with(OWN)
    await begun(store)
    store.marks = OTHER
    await appended(store, new_side(Answer("always", "them"), EntryId("s/3")))
    store.marks = OWN
    assert await authority_of(store, S) == Authority(STARTED, None, "unknown")


async def test_imported_agent_is_not_trusted_even_in_a_trusted_store() -> None:
    store = store_with(TRUSTED)
    await created(store, StreamHeader(S, 1, received=1), new_side(STARTED))
    assert (await authority_of(store, S)).agent == "imported"
    bound = AgentBound({"id": "mine"})
    await appended(store, new_side(bound))
    assert await authority_of(store, S) == Authority(bound)
    await appended(store, new_side(SessionReceived()))
    assert (await authority_of(store, S)).agent == "imported"


async def test_agent_of_a_forked_import_is_not_trusted() -> None:
    store = store_with(TRUSTED)
    await created(store, StreamHeader(S, 1, received=2), new_side(STARTED), new_tree(user("a")))
    fork = ForkPoint(S, EntryId("s/1"), 1, "tree")
    await created(store, StreamHeader(StreamId("f"), 1, fork=fork))
    assert (await authority_of(store, StreamId("f"))).agent == "imported"


async def test_session_without_agent_shows_no_agent() -> None:
    store = store_with(OWN)
    await created(store, StreamHeader(S, 1), new_tree(user("hello")))
    assert await authority_of(store, S) == Authority(None)
    assert msgspec.json.encode(Authority(None))


class Watched(MemoryStore):
    """A store that counts the entries it returns."""

    given = 0

    async def entries(self, *args: Any, **named: Any) -> list[Entry]:
        found = await super().entries(*args, **named)
        self.given += len(found)
        return found


async def test_entries_of_an_imported_session_without_turns_are_not_read() -> None:
    store = Watched(clock=ManualClock(), random=SeededRandom(1))
    said = [new_tree(user(str(n))) for n in range(500)]
    await created(store, StreamHeader(S, 0, origin="import", received=500), *said)
    assert await authority_of(store, S) == Authority(None)
    assert store.given == 0


async def test_imported_question_outside_a_turn_is_not_trusted() -> None:
    store = Watched(clock=ManualClock(), random=SeededRandom(1))
    asked = new_side(Question("approval", "May I?", ("allow", "deny")))
    await created(store, StreamHeader(S, 0, origin="import", received=1), asked)
    assert (await authority_of(store, S)).turn == "imported"
    assert store.given == 1
