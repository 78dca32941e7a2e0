"""Marks: only entries that were marked with the user's key count as the user's own."""

from __future__ import annotations

import msgspec
import pytest

from perdure.session.codec import body_of, new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import ToolStarted, TurnStarted
from perdure.session.messages import user
from perdure.session.notes import Answer, Label, SessionStarted
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.marks import KEY_BYTES, TRUSTED, Marks, endorsement
from perdure.stores.protocol import Commit, Lease, Write
from tests.fakes.clock import ManualClock, SeededRandom

S = StreamId("s")
KEY = b"k" * KEY_BYTES
OWN = Marks(lambda: KEY, is_trusted=False)
OTHER = Marks(lambda: b"o" * KEY_BYTES, is_trusted=False)
STARTED = SessionStarted({"id": "helper"}, {"working_dir": "/"}, "Be brief.")


def store_with(marks: Marks) -> MemoryStore:
    store = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    store.marks = marks
    return store


async def begun(store: MemoryStore, *, is_received: bool = False) -> list[Entry]:
    """Return a session with an agent and an open turn that runs a tool."""
    header = StreamHeader(S, 1)
    created = Write(stream=S, create=header, entries=(new_side(STARTED),), is_received=is_received)
    await store.commit(Commit(writes=(created,), at=1))
    lease = await store.acquire_lease(S, "me", 1000)
    first = (new_side(TurnStarted(1, "helper")), new_tree(user("go")))
    second = (new_side(ToolStarted("c", "t", {"a": 1}, 1, "write", "retry", "k")),)
    for head, entries in ((0, first), (2, second)):
        await store.commit(led(entries, head, lease, is_received=is_received))
    await store.commit(Commit(writes=(Write(stream=S, entries=(new_side(Label("x")),)),), at=1))
    return await store.entries(S)


def led(entries: tuple[NewEntry, ...], head: int, lease: Lease, *, is_received: bool) -> Commit:
    write = Write(
        stream=S, entries=entries, expected_head=head, lease=lease, is_received=is_received
    )
    return Commit(writes=(write,), at=1)


async def test_entries_marked_with_the_users_key_are_trusted() -> None:
    entries = await begun(store_with(OWN))
    assert OWN.own_among(entries) == {0, 1, 2, 3}
    assert [OWN.is_own(entry) for entry in entries] == [True, False, False, True, False]
    assert body_of(entries[0]) == STARTED
    assert entries[2].body == new_tree(user("go")).body


async def test_entries_marked_with_another_key_are_not_trusted() -> None:
    entries = await begun(store_with(OTHER))
    assert not OWN.own_among(entries)
    assert OTHER.own_among(entries) == {0, 1, 2, 3}


async def test_entries_without_a_mark_are_not_trusted() -> None:
    assert not OWN.own_among(await begun(store_with(TRUSTED)))
    received = await begun(store_with(OWN), is_received=True)
    assert not OWN.own_among(received)
    assert TRUSTED.own_among(received) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("field", ["stream", "kind", "v", "lane", "body", "seq"])
async def test_marked_entry_with_a_changed_field_is_not_trusted(field: str) -> None:
    entries = await begun(store_with(OWN))
    forged = {
        "stream": StreamId("t"),
        "kind": "agent_bound",
        "v": 7,
        "lane": "tree",
        "body": entries[3].body.replace(b'"a":1', b'"a":2'),
        "seq": 9,
    }
    for seq in (0, 3):
        if field == "body" and seq == 0:
            continue
        changed = msgspec.structs.replace(entries[seq], **{field: forged[field]})
        others = [entry for entry in entries if entry.seq != seq]
        own = OWN.own_among([*others, changed])
        if (field, seq) != ("seq", 0):  # a single entry has no position
            assert changed.seq not in own


async def test_message_changed_after_marking_is_not_trusted() -> None:
    entries = await begun(store_with(OWN))
    entries[2] = msgspec.structs.replace(entries[2], body=new_tree(user("rm")).body)
    assert OWN.own_among(entries) == {0, 3}


async def test_answer_moved_to_another_question_is_not_trusted() -> None:
    store = store_with(OWN)
    await begun(store)
    answer = new_side(Answer("allow", "me"), EntryId("s/3"))
    done = await store.commit(Commit(writes=(Write(stream=S, entries=(answer,)),), at=1))
    (given,) = done.entries[0]
    assert OWN.is_own(given)
    assert not OWN.is_own(msgspec.structs.replace(given, about=EntryId("s/1")))


async def test_endorsed_entry_is_trusted_until_it_changes() -> None:
    entries = await begun(store_with(TRUSTED))
    known = frozenset({endorsement(entries[0], KEY)})
    marks = Marks(lambda: KEY, is_trusted=False, endorsed=lambda: known)
    assert marks.own_among(entries) == {0}
    changed = msgspec.structs.replace(entries[0], seq=1)
    assert not marks.own_among([changed])
    assert marks.endorsements(entries[:1]) == [*known]
    assert not TRUSTED.endorsements(entries)


def test_commit_to_a_trusted_store_is_unchanged() -> None:
    commit = Commit(writes=(Write(stream=S, entries=(new_side(STARTED),)),), at=1)
    assert TRUSTED.with_marks(commit) is commit
