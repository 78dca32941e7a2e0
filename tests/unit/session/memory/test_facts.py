"""The fold of a memory stream into facts and their history."""

from __future__ import annotations

from perdure.session.codec import new_side, readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.memory.facts import Fact, fact_of, stored_facts
from perdure.session.memory.kinds import (
    FactCorrected,
    FactForgotten,
    FactRemembered,
    FactSourcesErased,
)
from perdure.session.notes import SideBody

A, B = EntryId("a/1"), EntryId("b/2")
FIRST = entry_id("m", 0)


def folded(*bodies: SideBody | None, about: EntryId = FIRST) -> list[Fact]:
    """Return the facts of a stream of `bodies`; None is an erased version."""
    entries: list[Entry] = []
    for seq, body in enumerate(bodies):
        if body is None:
            continue
        new = new_side(body)
        named = None if isinstance(body, FactRemembered) else about
        stream = StreamId("m")
        entries.append(Entry(stream, seq, "side", None, named, seq, new.kind, new.v, new.body))
    found = stored_facts((entry, readable(entry)) for entry in entries)
    return [fact_of(stored, "ana") for stored in found.values()]


def test_remembered_fact_has_the_fields_of_its_entry() -> None:
    (fact,) = folded(FactRemembered("tea", "helper", (A,), "tool", 3, 9))
    assert (fact.id, fact.text, fact.subject, fact.agent) == (FIRST, "tea", "ana", "helper")
    assert (fact.sources, fact.said_by, fact.valid_from, fact.valid_to) == ((A,), "tool", 3, 9)
    assert fact.history == ()
    assert [fact.is_valid_at(moment) for moment in (2, 3, 8, 9)] == [False, True, True, False]


def test_correction_replaces_fact_and_preserves_history() -> None:
    (fact,) = folded(
        FactRemembered("tea", None, (A,)), FactCorrected("milk"), FactCorrected("coffee")
    )
    assert (fact.text, fact.at) == ("coffee", 2)
    assert [version.text for version in fact.history] == ["tea", "milk"]
    assert fact.history[0].sources == (A,)


def test_forgotten_fact_is_removed() -> None:
    assert folded(FactRemembered("tea"), FactForgotten()) == []
    assert folded(None, FactForgotten()) == []


def test_erased_source_is_dropped_from_every_version() -> None:
    (fact,) = folded(
        FactRemembered("tea", None, (A, B)),
        FactCorrected("coffee", None, (B, A)),
        FactSourcesErased((A,)),
    )
    assert (fact.sources, fact.history[0].sources) == ((B,), (B,))


def test_erasing_the_first_version_of_a_fact_keeps_the_newer_version() -> None:
    (fact,) = folded(None, FactCorrected("coffee", "helper", (B,)))
    assert (fact.id, fact.text, fact.agent, fact.history) == (FIRST, "coffee", "helper", ())


def test_entries_about_an_unknown_fact_are_ignored() -> None:
    assert folded(FactSourcesErased((A,))) == []
    assert folded(FactForgotten()) == []
