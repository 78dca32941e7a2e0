"""Thousands of scopes: no fact and no episode crosses a namespace, a subject or an agent.

Each namespace, subject and agent has a word of its own in all of its texts. A call of one scope
must return its own words and no others. The first test plants a leak, and the check finds it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import perdure
from perdure import user
from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.memory.scope import MemoryFilter
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom

AGENTS = ("planner", "writer", None)


class Place(NamedTuple):
    """One scope: a namespace, a subject and an agent."""

    namespace: int
    subject: int | None
    agent: str | None

    @property
    def person(self) -> str | None:
        return None if self.subject is None else f"person{self.subject}"

    @property
    def word(self) -> str:
        return f"word-{self.namespace}-{self.subject}-{self.agent}-end"


def places(namespaces: int, subjects: int) -> list[Place]:
    people = (*range(subjects), None)
    return [Place(n, s, a) for n in range(namespaces) for s in people for a in AGENTS]


async def fill(stores: Sequence[Store], scopes: Sequence[Place]) -> None:
    """Give each scope a fact, and each subject a session that ended."""
    for place in scopes:
        store = stores[place.namespace]
        await store.memory.remember(place.word, subject=place.person, agent=place.agent)
        if place.agent is None:
            session = await store.create(subject=place.person, title=place.word)
            await session.append(user(place.word))
            await session.end(summary=place.word)


async def leaks_in(stores: Sequence[Store], scopes: Sequence[Place]) -> list[str]:
    """Return the scopes whose calls return a word of another scope, or lack their own."""
    wrong: list[str] = []
    for place in scopes:
        memory = stores[place.namespace].memory
        subject, agent = place.person, place.agent
        own = {each.word for each in (place._replace(agent=name) for name in AGENTS)}
        calls = {
            "facts": (await memory.facts(subject=subject, include_past=True), own),
            "episodes": (await memory.episodes(subject=subject), {place._replace(agent=None).word}),
        }
        if agent is not None:
            calls["agent"] = (await memory.facts(subject=subject, agent=agent), {place.word})
        for name, (found, expected) in calls.items():
            text = msgspec.json.encode(found).decode()
            words = {part.split("-end")[0] + "-end" for part in text.split('"') if "word-" in part}
            if words != expected:
                wrong.append(f"{name} of {place}: {words ^ expected}")
    return wrong


def in_memory(namespaces: int) -> list[Store]:
    clock, random_source = ManualClock(), SeededRandom(1)
    first = MemoryStore(clock=clock, random=random_source)
    outside = Outside(clock, random_source)
    return [Store(first.sharing(f"space{number}"), outside) for number in range(namespaces)]


def covers_all(_filter: MemoryFilter, _memory: object) -> bool:
    return True


def bytes_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_check_finds_a_planted_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    stores, scopes = in_memory(2), places(2, 3)
    await fill(stores, scopes)
    assert await leaks_in(stores, scopes) == []
    monkeypatch.setattr(MemoryFilter, "covers", covers_all)
    assert any(leak.startswith("agent") for leak in await leaks_in(stores, scopes))


async def test_calls_of_thousands_of_scopes_return_only_their_own() -> None:
    scopes = places(4, 249)
    stores = in_memory(4)
    await fill(stores, scopes)
    assert len(scopes) == 3_000
    assert await leaks_in(stores, random.Random(1).sample(scopes, 150)) == []


async def test_erased_scopes_are_found_by_no_call_and_no_byte_search(tmp_path: Path) -> None:
    scopes = places(1, 12)
    address = f"sqlite:///{tmp_path}/s.db"
    async with perdure.open(address) as store:
        await fill([store], scopes)
        gone = [place for place in scopes if place.subject is not None and place.subject % 2]
        for person in {place.person for place in gone}:
            await store.erase(subject=person)
        for place in gone:
            assert await store.memory.facts(subject=place.person, include_past=True) == []
            assert await store.memory.episodes(subject=place.person) == []
        everything = [
            *await store.memory.facts(scope="namespace"),
            *await store.memory.episodes(scope="namespace", limit=None),
        ]
        text = msgspec.json.encode(everything).decode()
        assert not [place for place in gone if place.word in text]
        assert await leaks_in([store], [place for place in scopes if place not in gone]) == []
    stored = bytes_in(tmp_path)
    assert not [place for place in gone if place.word.encode() in stored]
    assert any(place.word.encode() in stored for place in scopes)
