"""A scope covers one subject, unless it explicitly covers more."""

from __future__ import annotations

from perdure.memory.scope import MemoryFilter
from perdure.session.ids import EntryId
from perdure.session.memory.facts import Fact


def fact(subject: str | None, agent: str | None) -> Fact:
    return Fact(
        id=EntryId("m/0"),
        text="x",
        subject=subject,
        agent=agent,
        sources=(),
        said_by="person",
        valid_from=None,
        valid_to=None,
        at=0,
    )


def test_subject_scope_covers_exactly_one_subject() -> None:
    scope = MemoryFilter("ana")
    assert scope.covers(fact("ana", None))
    assert scope.covers(fact("ana", "helper"))
    assert not scope.covers(fact("bob", None))
    assert not scope.covers(fact(None, None))


def test_scope_without_subject_covers_only_entries_without_subject() -> None:
    assert MemoryFilter().covers(fact(None, None))
    assert not MemoryFilter().covers(fact("ana", None))


def test_scope_with_agent_excludes_other_agents() -> None:
    scope = MemoryFilter("ana", "helper")
    assert scope.covers(fact("ana", "helper"))
    assert not scope.covers(fact("ana", "other"))
    assert not scope.covers(fact("ana", None))


def test_agent_scope_includes_memories_of_one_agent_about_all_subjects() -> None:
    scope = MemoryFilter(None, "helper", "agent")
    assert scope.covers(fact("ana", "helper"))
    assert scope.covers(fact(None, "helper"))
    assert not scope.covers(fact("ana", "other"))


def test_namespace_scope_covers_all_subjects_and_agents() -> None:
    scope = MemoryFilter(name="namespace")
    assert scope.covers(fact("ana", "helper"))
    assert scope.covers(fact(None, None))
