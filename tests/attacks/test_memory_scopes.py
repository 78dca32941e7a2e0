"""Thousands of scopes: no fact, episode or recall crosses a namespace, a subject or an agent.

Each namespace, subject and agent has a word of its own in all of its texts. A call of one scope
must return its own words and no others. For each check, a first test plants a leak to prove that
the check finds leaks.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import perdure
from perdure import assistant, user
from perdure.apps.mcp_server.history import History
from perdure.apps.mcp_server.history import Scope as McpScope
from perdure.client.clock import Outside
from perdure.client.memory import recall_query
from perdure.client.store import Store
from perdure.memory import arrays
from perdure.memory.scope import MemoryFilter
from perdure.session.codec import new_side, new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import SessionStarted
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.search.corpus import Corpus
from perdure.stores.search.vectors import stored
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.embedders import WordEmbedder

WORD = re.compile(r"word-\d+-\w+-\w+-end")
AGENTS = ("planner", "writer", None)
FEW = 50
"""Up to this number of scopes, every call is made for each scope."""


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
    """Return the scopes whose calls return a word of another scope, or omit one of their own."""
    wrong: list[str] = []
    for place in scopes:
        memory = stores[place.namespace].memory
        subject, agent = place.person, place.agent
        own = {each.word for each in (place._replace(agent=name) for name in AGENTS)}
        calls: dict[str, tuple[Sequence[object], set[str]]] = {
            "facts": (await memory.facts(subject=subject, include_past=True), own),
            "episodes": (await memory.episodes(subject=subject), {place._replace(agent=None).word}),
        }
        of_session = place._replace(agent=None).word
        hits = await memory.recall("word", subject=subject, kinds=["fact"], limit=50)
        calls["recalled facts"] = (hits, own)
        hits = await memory.recall("word", subject=subject, kinds=["episode"], limit=50)
        calls["recalled episodes"] = (hits, {of_session})
        if agent is not None:
            calls["agent"] = (await memory.facts(subject=subject, agent=agent), {place.word})
            hits = await memory.recall("word", subject=subject, agent=agent, kinds=["fact"])
            calls["recalled agent"] = (hits, {place.word})
        for name, (found, expected) in calls.items():
            words = set(WORD.findall(msgspec.json.encode(found).decode()))
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


async def test_scope_check_finds_a_planted_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    stores, scopes = in_memory(2), places(2, 3)
    await fill(stores, scopes)
    assert await leaks_in(stores, scopes) == []
    monkeypatch.setattr(MemoryFilter, "covers", covers_all)
    leaks = {leak.partition(" of ")[0] for leak in await leaks_in(stores, scopes)}
    assert leaks >= {"agent", "recalled agent"}
    monkeypatch.undo()
    monkeypatch.setattr(arrays, "allowed_sessions", allow_all)
    leaks = {leak.partition(" of ")[0] for leak in await leaks_in(stores, scopes)}
    assert leaks == {"recalled episodes"}


@pytest.mark.all_only
async def test_search_and_list_return_only_data_of_the_given_scope() -> None:
    scopes = places(4, 249)
    stores = in_memory(4)
    await fill(stores, scopes)
    assert len(scopes) == 3_000
    assert await leaks_in(stores, random.Random(1).sample(scopes, 150)) == []


async def test_memory_of_erased_subjects_cannot_be_found(tmp_path: Path) -> None:
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
            assert await store.memory.recall(place.word, subject=place.person) == []
        everything = [
            *await store.memory.facts(scope="namespace"),
            *await store.memory.episodes(scope="namespace", limit=None),
            *await store.memory.recall("word", scope="namespace", limit=1_000),
        ]
        text = msgspec.json.encode(everything).decode()
        assert not [place for place in gone if place.word in text]
        assert await leaks_in([store], [place for place in scopes if place not in gone]) == []
    stored = bytes_in(tmp_path)
    assert not [place for place in gone if place.word.encode() in stored]
    assert any(place.word.encode() in stored for place in scopes)


async def test_vectors_of_erased_texts_are_removed_from_files_and_recall(
    tmp_path: Path,
) -> None:
    scopes = [place for place in places(1, 12) if place.subject is not None]
    gone = [place for place in scopes if place.subject is not None and place.subject % 2]
    embedder = WordEmbedder(dimension=64)
    # With the same words around it, a text has a vector of its own.
    vector_of = {place: stored(embedder.vector(place.word)) for place in scopes}
    async with perdure.open(f"sqlite:///{tmp_path}/s.db") as store:
        for place in scopes:
            session = await store.create(subject=place.person)
            await session.append(user(place.word))
        memory = store.memory.with_embedder(embedder)
        assert await memory.embed() == len(scopes)
    assert all(vector in bytes_in(tmp_path) for vector in vector_of.values()), "the check finds one"
    async with perdure.open(f"sqlite:///{tmp_path}/s.db") as store:
        memory = store.memory.with_embedder(embedder)
        for place in scopes:
            hits = await memory.recall(place.word, subject=place.person, limit=50)
            assert {each.text for each in hits} <= {
                other.word for other in scopes if other.subject == place.subject
            }
        for person in {place.person for place in gone}:
            await store.erase(subject=person)
        for place in gone:
            hits = await memory.recall(place.word, scope="namespace", limit=100)
            assert not {each.text for each in hits} & {other.word for other in gone}
        assert await memory.embed() == 0
    left = bytes_in(tmp_path)
    assert not [place for place in gone if vector_of[place] in left]
    assert all(vector_of[place] in left for place in scopes if place not in gone)


# ------------------------------------------------------------------ recall, tools, MCP


async def fill_sessions(stores: Sequence[Store], scopes: Sequence[Place]) -> None:
    """Give each scope a session of its agent; its messages contain the word of the scope.

    All other words are the same in every session, so that no session is a better answer to a
    question than another.
    """
    for number in range(0, len(scopes), 250):
        for namespace, store in enumerate(stores):
            writes = [
                session_of(place)
                for place in scopes[number : number + 250]
                if place.namespace == namespace
            ]
            if writes:
                await store.backend.commit(Commit(writes=tuple(writes), at=START_MS))


def session_of(place: Place) -> Write:
    stream = StreamId(f"session-{place.word}")
    header = StreamHeader(stream, START_MS, subject=place.person)
    said = (user(f"Which moon? {place.word}"), assistant(f"The full moon. {place.word}"))
    bound = () if place.agent is None else (new_side(SessionStarted({"id": place.agent})),)
    return Write(stream=stream, create=header, entries=(*bound, *map(new_tree, said)))


class Question(NamedTuple):
    """A call that asks for one scope, and the words that it must return."""

    name: str
    place: Place
    call: Callable[[], Awaitable[object]]
    expected: set[str]


async def recall_leaks_in(
    stores: Sequence[Store], scopes: Sequence[Place], asked: Sequence[Place]
) -> list[str]:
    """Return the `asked` scopes whose recalls return a text of another scope, or none of their own.
    `scopes` contains all scopes of the store.
    """
    wrong: list[str] = []
    for name, place, call, expected in questions(stores, scopes, asked):
        words = set(WORD.findall(msgspec.json.encode(await call()).decode()))
        if words != expected:
            wrong.append(f"{name} of {place}: {sorted(words ^ expected)[:5]}")
    return wrong


def questions(
    stores: Sequence[Store], scopes: Sequence[Place], asked: Sequence[Place]
) -> Iterator[Question]:
    """Yield the calls about the scopes `asked`, each with the words that it must return.

    A call that depends only on the subject or the agent is yielded once for each subject or agent.
    If `asked` is long, a search of sessions is yielded only once for each subject, because the
    search covers all sessions of the subject.
    """
    is_small = len(asked) <= FEW
    of_subject, of_agent = words_by(scopes, "subject"), words_by(scopes, "agent")
    subjects: set[object] = set()
    agents: set[object] = set()
    for place in asked:
        space, subject, agent = place.namespace, place.person, place.agent
        recall = partial(stores[space].memory.recall, limit=50)
        own = of_subject[space, place.subject]
        yield Question("word", place, partial(recall, place.word, subject=subject), own)
        history = History(stores[space], McpScope(subject, is_all=False))
        if is_small or (space, subject) not in subjects:
            search = partial(history.search_sessions, place.word)
            yield Question("mcp search", place, search, {place.word})
        if (space, subject) not in subjects:
            subjects.add((space, subject))
            yield Question("subject", place, partial(recall, "Which moon?", subject=subject), own)
            recalled = partial(history.recall, "Which moon?", limit=50)
            yield Question("mcp recall", place, recalled, own)
        if agent is not None:
            call = partial(recall, "moon", subject=subject, agent=agent)
            yield Question("agent", place, call, {place.word})
        if agent is not None and (space, agent) not in agents:
            agents.add((space, agent))
            words = of_agent[space, agent]
            call = partial(recall, "moon", scope="agent", agent=agent, limit=2 * len(scopes))
            yield Question("agents", place, call, words)


def words_by(scopes: Sequence[Place], field: str) -> dict[tuple[int, object], set[str]]:
    """Map each namespace and each value of `field` to the words of its scopes."""
    words: defaultdict[tuple[int, object], set[str]] = defaultdict(set)
    for place in scopes:
        words[place.namespace, getattr(place, field)].add(place.word)
    return words


def allow_all(corpus: Corpus, _scope: object) -> bytearray:
    return bytearray([1]) * len(corpus.session_subjects)


async def every_session(store: SessionStore, _agent: str) -> frozenset[str]:
    return frozenset(info.id for info in await store.sessions(limit=None, scope="all"))


async def test_recall_check_detects_planted_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    stores, scopes = in_memory(2), places(2, 3)
    await fill_sessions(stores, scopes)
    assert await recall_leaks_in(stores, scopes, scopes) == []
    with monkeypatch.context() as patched:
        patched.setattr(arrays, "allowed_sessions", allow_all)
        leaks = await recall_leaks_in(stores, scopes, scopes)
        assert {leak.partition(" of ")[0] for leak in leaks} >= {"subject", "mcp recall", "agent"}
    with monkeypatch.context() as patched:
        patched.setattr(recall_query, "_sessions_of", every_session)
        leaks = await recall_leaks_in(stores, scopes, scopes)
        assert {leak.partition(" of ")[0] for leak in leaks} == {"agent", "agents"}


@pytest.mark.parametrize(
    ("subjects", "sample"),
    [
        (59, 24),
        pytest.param(249, 3_000, marks=[pytest.mark.all_only, pytest.mark.timeout(1_800)]),
    ],
)
@pytest.mark.parametrize("kind", [pytest.param("memory", marks=pytest.mark.all_only), "sqlite"])
async def test_recall_in_thousands_of_scopes_returns_only_data_of_its_scope(
    tmp_path: Path, kind: str, subjects: int, sample: int
) -> None:
    scopes = places(4, subjects)
    assert len(scopes) in (720, 3_000)
    async with AsyncExitStack() as opened:
        stores = in_memory(4)
        if kind == "sqlite":
            address = f"sqlite:///{tmp_path}/s.db"
            stores = [
                await opened.enter_async_context(perdure.open(address, namespace=f"space{number}"))
                for number in range(4)
            ]
        await fill_sessions(stores, scopes)
        for store in stores[::2]:
            await store.index()
        asked = random.Random(2).sample(scopes, sample)
        assert await recall_leaks_in(stores, scopes, asked) == []
