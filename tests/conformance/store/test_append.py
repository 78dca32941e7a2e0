"""Rule 3 of an append: seq is dense and in order; input is stored unchanged or rejected."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from perdure.errors import (
    InvalidEntry,
)
from perdure.session.codec import encode
from perdure.session.entries import LEAF, NewEntry, Sibling
from perdure.session.ids import EntryId
from perdure.session.kinds import Compaction
from perdure.session.notes import Adopted
from perdure.stores.session_store import SessionStore
from tests.conformance.store.building import (
    S,
    append,
    append_one,
    create,
    ids,
    labelled,
    replied,
    said,
    texts,
    unknown,
)
from tests.fakes.clock import START_MS
from tests.fakes.samples import case


async def test_seqs_are_consecutive_from_zero_in_commit_order(store: SessionStore) -> None:
    await create(store, S, said("a"), labelled("x", Sibling(0)))
    await append(store, S, said("b"))
    await append(store, S, labelled("y", None), said("c"), said("d"))

    log = await store.entries(S)

    assert [entry.seq for entry in log] == [0, 1, 2, 3, 4, 5]
    assert ids(log) == [f"s/{seq}" for seq in range(6)]
    assert (await store.state(S)).head == 5


async def test_commit_returns_the_stored_entries(store: SessionStore) -> None:
    await create(store)

    appended = await append(store, S, said("a"), labelled("x", Sibling(0)), replied("b"))

    assert appended == await store.entries(S)


async def test_entries_of_concurrent_commits_are_not_interleaved(
    store: SessionStore,
) -> None:
    await create(store)

    commits = await asyncio.gather(
        *(append(store, S, *(said(f"{writer}:{n}") for n in range(5))) for writer in range(20))
    )

    for commit in commits:
        assert [entry.seq - commit[0].seq for entry in commit] == [0, 1, 2, 3, 4]
    assert [entry.seq for entry in await store.entries(S)] == list(range(100))


async def test_appends_of_one_writer_keep_their_order(store: SessionStore) -> None:
    await create(store)

    async def write(writer: int) -> None:
        for number in range(20):
            await append(store, S, said(f"{writer}:{number}"))

    await asyncio.gather(*(write(writer) for writer in range(4)))

    log = texts(await store.entries(S))
    for writer in range(4):
        own = [text for text in log if text.startswith(f"{writer}:")]
        assert own == [f"{writer}:{number}" for number in range(20)]


async def test_entry_without_a_time_gets_the_time_of_the_commit(store: SessionStore) -> None:
    await create(store)

    entries = await append(store, S, said("now"), said("then", at=12_345), at=START_MS + 7)

    assert [entry.at for entry in entries] == [START_MS + 7, 12_345]


async def test_entries_are_ordered_by_seq_and_never_by_time(store: SessionStore) -> None:
    await create(store, S, said("a", at=300), said("b", at=100), said("c", at=200))

    assert texts(await store.entries(S)) == ["a", "b", "c"]
    assert texts(await store.branch(S, EntryId("s/2"))) == ["a", "b", "c"]


async def test_entry_is_stored_with_unchanged_body_kind_and_version(store: SessionStore) -> None:
    await create(store)
    body = b'{ "x" : 1.0e2,\n "y":"\\u00e9" }'

    entry = await append_one(store, S, NewEntry("some_kind", body, 3))

    assert (entry.kind, entry.v, entry.body) == ("some_kind", 3, body)
    assert await store.entry(S, entry.id) == entry


async def test_entry_can_be_appended_with_an_encoded_body(store: SessionStore) -> None:
    await create(store, S, said("a"))
    undone = Compaction("all of it", EntryId("s/0"))

    entries = await append(
        store,
        S,
        NewEntry("compaction", encode(undone), parent=LEAF),
        NewEntry("adopted", encode(Adopted(EntryId("s/0"))), lane="side", about=Sibling(0)),
    )

    assert msgspec.json.decode(entries[0].body, type=Compaction) == undone
    assert entries[1].about == "s/1"


# ---------------------------------------------------------------- what an entry may be

REFUSED = {
    "a kind with a capital": NewEntry("Message", b"{}"),
    "a kind with a space": NewEntry("a b", b"{}"),
    "a kind with a line end": NewEntry("ab\n", b"{}"),
    "an empty kind": NewEntry("", b"{}"),
    "a kind of 65 characters": NewEntry("a" * 65, b"{}"),
    "version zero": NewEntry("some_kind", b"{}", 0),
    "a message beside the tree": NewEntry("message", said().body, lane="side"),
    "a label in the tree": NewEntry("label", b"{}"),
    "a side entry with a parent": NewEntry("note", b"{}", lane="side", parent=EntryId("s/0")),
    "a tree entry about something": NewEntry("note", b"{}", about=EntryId("s/0")),
    "about itself": labelled("x", EntryId("s/2")),
    "about an entry to come": labelled("x", EntryId("s/3")),
    "about no entry id": labelled("x", EntryId("over there")),
    "about two words": labelled("x", EntryId("a b/0")),
    "no body": NewEntry("some_kind", b""),
    "a body that is not JSON": NewEntry("some_kind", b"{"),
    "a body with more than JSON": NewEntry("some_kind", b"{} {}"),
    "a body nested too deep to read": NewEntry("some_kind", b"[" * 100_000 + b"]" * 100_000),
    "a message nested too deep to read": NewEntry("message", b'{"x":' * 100_000),
    "a body that is not UTF-8": NewEntry("some_kind", b'{"x":"\xff"}'),
    "a message without a role": NewEntry("message", b'{"parts":[]}'),
    "a message that is not JSON": NewEntry("message", b"hello"),
    "a message that is not UTF-8": NewEntry(
        "message", b'{"role":"user","parts":[],"later":"\xff"}'
    ),
    "a compaction without a summary": NewEntry("compaction", b"{}"),
    "a leaf without a target": NewEntry("leaf", b"{}", lane="side"),
    "a leaf of a newer version": NewEntry("leaf", b'{"target":null}', 2, lane="side"),
    "a time out of range": NewEntry("some_kind", b"{}", at=2**63),
    "an empty foreign id": NewEntry("some_kind", b"{}", alias=""),
    "a foreign id that is no text": NewEntry("some_kind", b"{}", alias="\ud800"),
}


async def test_entries_that_break_log_rules_are_rejected(store: SessionStore) -> None:
    await create(store, S, said("a"))
    before = await store.state(S)
    for name, new in REFUSED.items():
        with case(name):
            with pytest.raises(InvalidEntry):
                await append(store, S, said("b"), new)

            assert await store.state(S) == before


async def test_entries_of_unknown_kinds_can_be_appended(
    store: SessionStore,
) -> None:
    await create(store)

    tree, side = await append(
        store, S, unknown(), NewEntry("from_the_future", b"[]", 2, "side", about=Sibling(0))
    )

    assert (tree.lane, side.lane, side.about) == ("tree", "side", "s/0")


async def test_newer_version_of_known_kind_is_stored_unchanged(store: SessionStore) -> None:
    await create(store)

    entry = await append_one(store, S, NewEntry("compaction", b'{"gist":1}', 2))

    assert await store.branch(S, entry.id) == [entry]
