"""The index of name parts. A part starts at each position of a name.

A query is split into parts, and some of these parts are looked up.
"""

from __future__ import annotations

from itertools import islice

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo, is_found
from perdure.stores.name_parts import (
    LONG_NAME,
    MOST_CHARACTERS,
    MOST_SOUGHT,
    PART_CHARACTERS,
    end_of,
    is_renamed,
    parts_of,
    rounds,
    sought_parts,
)

NAMED = SessionInfo(
    id=StreamId("id-7"), kind="session", origin="user", created_at=0, updated_at=0, title="Straße"
)


def named(title: str) -> SessionInfo:
    return msgspec.structs.replace(NAMED, title=title)


def may_have(info: SessionInfo, query: str) -> bool:
    """Return whether the index contains the session for every part of the query."""
    parts = parts_of(info)
    return all(
        any(sought <= part < end_of(sought) for part in parts) or LONG_NAME in parts
        for sought in sought_parts(query)
    )


LETTERS = st.text("aAb\u00df\u1e9e\u0130\u0131\u017f 7-\u00e9\U0010ffff\ud800", max_size=40)


@given(LETTERS, LETTERS)
def test_name_index_contains_every_session_that_a_query_finds(title: str, query: str) -> None:
    info = named(title)
    if is_found(info, None, query):
        assert may_have(info, query)


@given(LETTERS, st.integers(0, 40), st.integers(1, 40))
def test_name_index_finds_every_substring_of_a_name(title: str, at: int, size: int) -> None:
    info = named(title)
    query = info.name[at : at + size]
    assert is_found(info, None, query)
    assert may_have(info, query)


def test_short_name_query_is_answered_by_the_index_alone() -> None:
    info = named("Plan the trip")
    for query in ("x", "zz", "tripp", "the  tr", "id-8", "id-7 "):
        assert not is_found(info, None, query)
        assert not may_have(info, query)
    assert all(may_have(info, query) for query in ("P", "AN", "the trip", "D-7", ""))


def test_long_names_and_queries_use_a_limited_number_of_parts() -> None:
    within, beyond = named("x" * MOST_CHARACTERS), named("y" * (MOST_CHARACTERS + 1))
    assert LONG_NAME not in parts_of(within)
    assert parts_of(beyond) == {LONG_NAME, b"id-7", b"d-7", b"-7", b"7"}
    sought = sought_parts("".join(map(chr, range(0x4E00, 0x4E00 + 1_000))))
    assert len(sought) == MOST_SOUGHT
    assert sought[-1].decode() == "".join(map(chr, range(0x4E00 + 992, 0x4E00 + 1_000)))
    assert [len(part) for part in sought_parts("seventeen letters")] == [PART_CHARACTERS] * 3


def test_erased_sessions_and_flows_are_not_in_the_name_index() -> None:
    assert parts_of(msgspec.structs.replace(NAMED, status="erased")) == frozenset()
    assert parts_of(msgspec.structs.replace(NAMED, kind="flow")) == frozenset()


def test_changes_to_other_fields_do_not_rename_a_session() -> None:
    said = msgspec.structs.replace(NAMED, updated_at=9, messages=4, cwd="/a", status="ended")
    assert not is_renamed(NAMED, said)
    for changes in ({"title": None}, {"first_text": "Hi"}, {"status": "erased"}):
        assert is_renamed(NAMED, msgspec.structs.replace(NAMED, **changes))


def test_name_lookup_reads_sessions_in_batches_of_increasing_size() -> None:
    assert list(islice(rounds(), 3)) == [64, 256, 1_024]
