"""Facts captured from an episode, by a model or by a program's own extractor."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence

import pytest

import perdure
from perdure import user
from perdure.client.store import Store
from perdure.memory.episodes import Episode
from perdure.memory.extraction import ExtractedFact
from perdure.models.protocol import Delta, ModelRequest, StreamEnd
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.memory.facts import Fact
from perdure.session.messages import Usage
from perdure.testing import ScriptedModel

ANSWER = (
    '[{"fact": "Ana likes tea", "messages": [1]}, {"fact": "Ana lives in Bonn", "messages": [2]}]'
)


class Fixed:
    """An extractor that returns the facts that it was created with."""

    def __init__(self, *found: ExtractedFact) -> None:
        self.found = found
        self.known: list[str] = []

    async def extract(
        self, episode: Episode, entries: Sequence[Entry], known: Sequence[Fact]
    ) -> Sequence[ExtractedFact]:
        self.known = [fact.text for fact in known]
        return self.found


async def ended(store: Store) -> tuple[perdure.Session, Episode]:
    session = await store.create(subject="ana")
    await session.append(user("I like tea"), user("I live in Bonn"))
    await session.end()
    (episode,) = await store.memory.episodes(session=session.id)
    return session, episode


async def test_model_captures_facts_with_their_sources(store: Store) -> None:
    session, episode = await ended(store)
    model = ScriptedModel([ANSWER, ANSWER])
    extractor = perdure.ModelExtractor(model, "p:m")
    found = await store.memory.capture(episode, extractor)
    assert [(fact.text, fact.subject, fact.said_by) for fact in found] == [
        ("Ana likes tea", "ana", "inferred"),
        ("Ana lives in Bonn", "ana", "inferred"),
    ]
    assert [fact.sources for fact in found] == [(f"{session.id}/0",), (f"{session.id}/1",)]
    assert await store.memory.capture(episode, extractor) == []
    assert len(await store.memory.facts(subject="ana")) == 2
    assert await store.memory.facts() == []
    await session.erase()
    assert await store.memory.facts(subject="ana") == []


async def test_extractor_receives_known_facts_and_does_not_capture_them_again(store: Store) -> None:
    session, episode = await ended(store)
    await store.memory.remember("Ana likes tea", subject="ana")
    await store.memory.remember("is another's", subject="bob")
    source = (EntryId(f"{session.id}/0"),)
    fixed = Fixed(ExtractedFact(text="Ana likes tea", sources=source))
    assert await store.memory.capture(episode, fixed) == []
    assert fixed.known == ["Ana likes tea"]


async def test_secret_and_forgotten_fact_are_not_captured(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    session, episode = await ended(store)
    source = (EntryId(f"{session.id}/0"),)
    secret = ExtractedFact(text="token ghp_" + "a1B2" * 9, sources=source)
    plain = ExtractedFact(text="Ana likes tea", sources=source)
    with caplog.at_level(logging.WARNING):
        (fact,) = await store.memory.capture(episode, Fixed(secret, plain))
    assert fact.text == "Ana likes tea"
    assert "ghp_" not in caplog.text
    await store.memory.forget(fact.id)
    assert await store.memory.capture(episode, Fixed(plain)) == []
    assert await store.memory.facts(subject="ana") == []


async def test_fact_without_a_source_in_the_episode_raises_wrong_argument(store: Store) -> None:
    _, episode = await ended(store)
    other = await (await store.create(subject="bob")).append(user("Hello"))
    for sources in ((), (other.id,)):
        with pytest.raises(perdure.errors.WrongArgument, match="sources in its episode"):
            await store.memory.capture(episode, Fixed(ExtractedFact(text="x", sources=sources)))


async def test_answer_that_is_not_json_raises_malformed_response_and_stores_nothing(
    store: Store,
) -> None:
    _, episode = await ended(store)
    with pytest.raises(perdure.errors.MalformedResponse):
        await store.memory.capture(episode, perdure.ModelExtractor(ScriptedModel(["no"]), "p:m"))
    assert await store.memory.facts(subject="ana") == []


class Broken(ScriptedModel):
    """A model that sends more after the end of its answer."""

    is_open = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        self.is_open = True
        try:
            for _ in range(2):
                yield StreamEnd("stop", Usage())
        finally:
            self.is_open = False


async def test_broken_answer_closes_the_model_call_of_the_extractor(store: Store) -> None:
    _, episode = await ended(store)
    model = Broken([])
    with pytest.raises(ValueError, match="after the end") as broken:
        await perdure.ModelExtractor(model, "p:m").extract(episode, [], [])
    assert not model.is_open
    del broken
