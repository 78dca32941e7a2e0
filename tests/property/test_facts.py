"""Random histories of facts, corrections and erasures match a model, and leave no erased text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure import user
from perdure.client.store import Store
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from tests.fakes.clock import ManualClock, SeededRandom

SUBJECTS = ("ana", "bob", None)
ACTS = ("remember", "remember", "correct", "forget", "erase_entry", "erase_session")


class Step(NamedTuple):
    act: str
    subject: int
    picks: tuple[int, ...]


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(ACTS),
        st.integers(0, 2),
        st.lists(st.integers(0, 11), min_size=1, max_size=3).map(tuple),
    ),
    max_size=14,
)


class Version(NamedTuple):
    text: str
    sources: frozenset[EntryId]


@dataclass
class Model:
    """The expected facts by id, each with its subject and versions; and the erased texts."""

    facts: dict[EntryId, tuple[str | None, list[Version]]] = field(default_factory=dict)
    erased_texts: set[str] = field(default_factory=set)

    def erase(self, entries: frozenset[EntryId]) -> None:
        for fact, (subject, versions) in list(self.facts.items()):
            left: list[Version] = []
            for version in versions:
                sources = version.sources - entries
                if version.sources and not sources:
                    self.erased_texts.add(version.text)
                else:
                    left.append(Version(version.text, sources))
            if not left or left[-1].text != versions[-1].text:
                self.forget(fact)
            else:
                self.facts[fact] = (subject, left)

    def forget(self, fact: EntryId) -> None:
        self.erased_texts |= {version.text for version in self.facts.pop(fact)[1]}


class World:
    """A store with two sessions for each subject, and the model of its facts."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.model = Model()
        self.sessions: list[perdure.Session] = []
        self.said: dict[EntryId, Entry] = {}
        self.number = 0

    async def fill(self) -> None:
        for subject in (*SUBJECTS, *SUBJECTS):
            session = await self.store.create(subject=subject)
            self.sessions.append(session)
            for entry in await session.append(user("one"), user("two")):
                self.said[entry.id] = entry

    def new_text(self) -> str:
        self.number += 1
        return f"fact-{self.number}-end"

    def picked(self, picks: Sequence[int]) -> frozenset[EntryId]:
        alive = sorted(self.said)
        return frozenset(alive[pick % len(alive)] for pick in picks) if alive else frozenset()

    async def run(self, step: Step) -> None:
        memory, model = self.store.memory, self.model
        subject, sources = SUBJECTS[step.subject], self.picked(step.picks)
        facts = sorted(model.facts)
        fact = facts[step.picks[0] % len(facts)] if facts else None
        match step.act:
            case "remember":
                text, given = self.new_text(), sources if subject else frozenset[EntryId]()
                made = await memory.remember(text, subject=subject, source=sorted(given))
                model.facts[made.id] = (subject, [Version(text, given)])
            case "correct" if fact is not None:
                text = self.new_text()
                given = sources if len(step.picks) > 1 else frozenset[EntryId]()
                await memory.correct(fact, text, source=sorted(given))
                versions = model.facts[fact][1]
                versions.append(Version(text, given or versions[-1].sources))
            case "forget" if fact is not None:
                await memory.forget(fact)
                model.forget(fact)
            case "erase_entry" if sources:
                entry = min(sources)
                session = next(s for s in self.sessions if entry.startswith(f"{s.id}/"))
                await session.erase_entries([entry])
                self.lose(frozenset({entry}))
            case "erase_session" if sources:
                session = next(s for s in self.sessions if min(sources).startswith(f"{s.id}/"))
                await session.erase()
                self.lose(frozenset(e for e in self.said if e.startswith(f"{session.id}/")))
            case _:
                pass

    def lose(self, entries: frozenset[EntryId]) -> None:
        for entry in entries:
            del self.said[entry]
        self.model.erase(entries)

    async def check(self) -> None:
        for subject in SUBJECTS:
            found = {
                fact.id: [
                    *(Version(each.text, frozenset(each.sources)) for each in fact.history),
                    Version(fact.text, frozenset(fact.sources)),
                ]
                for fact in await self.store.memory.facts(subject=subject)
            }
            wanted = self.model.facts.items()
            assert found == {id_: versions for id_, (of, versions) in wanted if of == subject}
        backend = self.store.backend
        stored = b""
        for state in await backend.maintenance.segment_states():
            for entry in await backend.entries(state.stream):
                stored += entry.body
        assert not [text for text in self.model.erased_texts if text.encode() in stored]
        assert (await self.store.verify()).problems == ()


async def _run(steps: list[Step]) -> None:
    async with perdure.open("memory:", clock=ManualClock(), random=SeededRandom(1)) as store:
        world = World(store)
        await world.fill()
        for step in steps:
            await world.run(step)
        await world.check()


@given(STEPS)
def test_facts_after_random_changes_equal_the_reference_model(steps: list[Step]) -> None:
    asyncio.run(_run(steps))
