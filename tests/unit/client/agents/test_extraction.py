"""Facts are extracted once after each end of a session, and do not delay the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import perdure
from perdure import Agent, MemoryConfig, Runtime, assistant, tool_call, user
from perdure.client.agents import extraction
from perdure.client.agents.files.writer import agent_text
from perdure.client.store import Store
from perdure.errors import ConfigError, WrongArgument
from perdure.memory.episodes import Episode
from perdure.memory.extraction import ExtractedFact
from perdure.models.prices import Price
from perdure.models.protocol import Delta, ModelInfo, ModelRequest
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_id
from perdure.session.memory.facts import Fact
from perdure.session.memory.kinds import EpisodeRecorded, FactsCaptured, FactsDue
from perdure.session.notes import SessionEnded
from perdure.stores.protocol import Commit, Write
from perdure.testing import ScriptedModel
from tests.fakes.clock import ManualClock

ANSWER = '[{"fact": "Ana likes tea", "messages": [1]}]'
MODEL = Agent("helper", model="scripted:any", memory=MemoryConfig(extractor="model"))


class Talk:
    """A model that says hello, and answers the request of an extractor with `facts`."""

    def __init__(self, facts: str) -> None:
        self.chat = ScriptedModel(["Hello"])
        self.asked = ScriptedModel([facts])

    def info(self, model: str) -> ModelInfo:
        return self.chat.info(model)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        is_asked = "conversation that ended" in (request.system or "")
        return (self.asked if is_asked else self.chat).stream(request)


class Noted:
    """An extractor that finds one fact after its event is set."""

    def __init__(self, said_by: Any = "person") -> None:
        self.calls: list[str] = []
        self.begun = asyncio.Event()
        self.is_free = asyncio.Event()
        self.is_free.set()
        self.said_by = said_by

    async def extract(
        self, episode: Episode, entries: Sequence[Entry], known: Sequence[Fact]
    ) -> list[ExtractedFact]:
        self.calls.append(episode.id)
        self.begun.set()
        await self.is_free.wait()
        return [ExtractedFact(text="Ana likes tea", sources=(entries[0].id,), said_by=self.said_by)]


def agent_with(extractor: Any) -> Agent:
    memory = MemoryConfig(extractor=extractor, semantic_top_k=0, episodic_top_k=0)
    return Agent("helper", model="scripted:any", memory=memory)


async def outcomes(store: Store, session: str) -> list[FactsCaptured]:
    notes = await store.backend.notes(StreamId(session), (FactsCaptured.kind,))
    return [body for note in notes if isinstance(body := body_of(note), FactsCaptured)]


async def test_model_of_the_agent_extracts_facts_after_the_session_ends(store: Store) -> None:
    model = Talk(ANSWER)
    async with Runtime(store, agents=[MODEL], models=model) as runtime:
        chat = await runtime.start("helper", subject="ana")
        await chat.send("I like tea")
        await chat.end()
    (fact,) = await store.memory.facts(subject="ana")
    assert (fact.text, fact.said_by, fact.agent) == ("Ana likes tea", "inferred", "helper")
    (source,) = fact.sources
    message = (await store.entry(source)).message
    assert message is not None
    assert message.text == "I like tea"
    (outcome,) = await outcomes(store, chat.id)
    assert (outcome.facts, outcome.problem, outcome.model) == ((fact.id,), None, "scripted:any")
    assert outcome.usage is not None
    (episode,) = await store.memory.episodes(subject="ana")
    assert episode.extraction == "done"
    assert await store.backend.open_of_all(FactsDue.kind) == []


async def test_end_of_a_session_does_not_wait_for_the_extractor(store: Store) -> None:
    extractor = Noted()
    extractor.is_free.clear()
    model = ScriptedModel(["Hello"])
    async with Runtime(store, agents=[agent_with(extractor)], models=model) as runtime:
        chat = await runtime.start("helper", subject="ana")
        await chat.send("I like tea")
        await chat.end()
        await extractor.begun.wait()
        (episode,) = await store.memory.episodes(subject="ana")
        assert episode.extraction == "due"
        assert await store.memory.facts(subject="ana") == []
        extractor.is_free.set()
    (fact,) = await store.memory.facts(subject="ana")
    assert fact.said_by == "person"


async def test_session_ended_in_any_way_is_extracted_once(store: Store, clock: ManualClock) -> None:
    calls: list[str] = []

    async def extract(
        episode: Episode, entries: Sequence[Entry], known: Sequence[Fact]
    ) -> list[ExtractedFact]:
        calls.append(episode.by)
        return []

    ends = assistant(tool_call("c1", "end_session", {"reason": "done"}))
    model = ScriptedModel([ends, "Bye"])
    agent = replace(agent_with(extract), tools=["end_session"])
    quiet = replace(agent, id="quiet", tools=[])
    async with Runtime(store, agents=[agent, quiet], models=model, idle_timeout_s=60) as runtime:
        by_agent = await runtime.start("helper")
        await by_agent.send("Bye")
        by_user = await runtime.start("helper")
        await by_user.session.append(user("Hello"))
        await (await store.open(by_user.id)).end()  # not by a chat
        idle = await runtime.start("quiet")
        await idle.send("Hello")
        clock.advance(61)
        assert await runtime.end_idle() == [idle.id]
    assert sorted(calls) == ["agent", "idle", "user"]
    async with Runtime(store, agents=[agent], models=model) as runtime:
        await runtime.start("helper")
    assert len(calls) == 3


async def test_interrupted_extraction_is_run_by_next_runtime(store: Store) -> None:
    stuck = Noted()
    stuck.is_free.clear()
    one = Runtime(store, agents=[agent_with(stuck)], models=ScriptedModel(["Hi"]))
    chat = await one.start("helper", subject="ana")
    await chat.send("I like tea")
    await chat.end()
    await stuck.begun.wait()
    await one.suspend()
    assert await store.memory.facts(subject="ana") == []
    again = Noted()
    both = [Runtime(store, agents=[agent_with(again)], models=ScriptedModel([])) for _ in range(2)]
    await asyncio.gather(*(runtime.close() for runtime in both))
    assert again.calls == stuck.calls
    assert len(await store.memory.facts(subject="ana")) == 1


@pytest.mark.parametrize("answer", ["no list", '[{"fact": 1}]'])
async def test_failed_extraction_is_recorded_and_not_repeated(store: Store, answer: str) -> None:
    model = Talk(answer)
    async with Runtime(store, agents=[MODEL], models=model) as runtime:
        chat = await runtime.start("helper", subject="ana")
        await chat.send("I like tea")
        await chat.end()
    (outcome,) = await outcomes(store, chat.id)
    assert outcome.problem is not None
    assert "JSON" in outcome.problem
    (episode,) = await store.memory.episodes(subject="ana")
    assert (episode.extraction, episode.extraction_problem) == ("failed", outcome.problem)
    async with Runtime(store, agents=[MODEL], models=ScriptedModel([])) as runtime:
        await runtime.start("helper")
    assert len(await outcomes(store, chat.id)) == 1


async def test_extractor_that_never_returns_fails_and_the_runtime_closes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> list[ExtractedFact]:
        await asyncio.sleep(3_600)
        return []

    monkeypatch.setattr(extraction, "_LONGEST_S", 0.05)
    agent = Agent("helper", model="x:y", memory=MemoryConfig(extractor=hang))
    async with Runtime(store, agents=[agent], models=ScriptedModel(["Yes."])) as runtime:
        chat = await runtime.start("helper", subject="ana")
        await chat.send("I like tea.")
        await chat.session.end()
    (episode,) = await store.memory.episodes(subject="ana")
    assert (episode.extraction, episode.extraction_problem) == ("failed", "TimeoutError")


async def test_no_extraction_is_pending_without_extractor(store: Store) -> None:
    model = ScriptedModel(["Hello"])
    async with Runtime(store, agents=[agent_with(None)], models=model) as runtime:
        chat = await runtime.start("helper")
        await chat.send("I like tea")
        await chat.end()
    (episode,) = await store.memory.episodes()
    assert episode.extraction is None


async def test_exhausted_budget_prevents_the_model_call_of_the_extractor(store: Store) -> None:
    agent = replace(MODEL, max_cost_microcents=1, on_exceed="warn")
    model = Talk(ANSWER)
    prices = {"scripted:any": Price(1_000_000_000, 1_000_000_000)}
    async with Runtime(store, agents=[agent], models=model, prices=prices) as runtime:
        chat = await runtime.start("helper")
        await chat.send("I like tea")
        await chat.end()
    assert model.asked.requests == []
    (outcome,) = await outcomes(store, chat.id)
    assert outcome.problem is not None
    assert "budget" in outcome.problem


async def test_pending_extraction_of_an_imported_session_is_not_run(tmp_path: Path) -> None:
    async with perdure.open("memory:") as store, perdure.open("memory:") as other:
        model = ScriptedModel(["Hello"])
        async with Runtime(store, agents=[agent_with(Noted())], models=model) as runtime:
            chat = await runtime.start("helper", subject="ana")
            await chat.send("I like tea")
        at, stream = 1_700_000_000_000, StreamId(chat.id)
        head = (await store.backend.state(stream)).head
        forged = (
            new_side(SessionEnded()),
            new_side(FactsDue("helper"), entry_id(chat.id, head + 1)),
        )
        await store.backend.commit(Commit(writes=(Write(stream=stream, entries=forged),), at=at))
        file = tmp_path / "session.jsonl"
        await (await store.open(chat.id)).export(path=file)
        assert (await other.import_files([file])).is_ok
        extractor = Noted()
        async with Runtime(other, agents=[agent_with(extractor)], models=model) as runtime:
            await runtime.start("helper")
        assert extractor.calls == []
        assert await other.memory.facts(scope="namespace") == []


async def test_facts_are_extracted_even_if_the_store_is_not_trusted(tmp_path: Path) -> None:
    ends = assistant(tool_call("c1", "end_session", {"reason": "done"}))
    agent = replace(agent_with(extractor := Noted()), tools=["end_session"])
    model = ScriptedModel([ends, "Bye"])
    async with (
        perdure.open(f"sqlite:///{tmp_path / 's.db'}", is_trusted=False) as store,
        Runtime(store, agents=[agent], models=model) as runtime,
    ):
        by_agent = await runtime.start("helper")
        await by_agent.send("Bye")
        by_user = await runtime.start("helper")
        await by_user.session.append(user("Hello"))
        await by_user.end()
    assert len(extractor.calls) == 2


async def test_extracted_fact_belongs_to_the_agent_of_the_extractor(
    store: Store,
) -> None:
    model = ScriptedModel(["Hello"])
    async with Runtime(store, agents=[agent_with(Noted())], models=model) as runtime:
        chat = await runtime.start("helper", subject="ana")
        await chat.send("I like tea")
        stream = StreamId(chat.id)
        end = entry_id(chat.id, (await store.backend.state(stream)).head + 1)
        recorded = EpisodeRecorded(first=0, started_at=0, ended_at=0, agent="other", messages=2)
        bodies = (SessionEnded(), None), (recorded, end), (FactsDue("helper"), end)
        write = Write(stream=stream, entries=tuple(new_side(*each) for each in bodies))
        await store.backend.commit(Commit(writes=(write,), at=0))
    (fact,) = await store.memory.facts(subject="ana")
    assert fact.agent == "helper"


def test_invalid_extractor_is_rejected() -> None:
    for wrong in ("another", 7, object()):
        with pytest.raises(WrongArgument, match="extractor"):
            MemoryConfig(extractor=wrong)


def test_agent_snapshot_and_agent_file_contain_the_extractor() -> None:
    own = agent_with(Noted())
    memory = own.snapshot()["memory"]
    assert isinstance(memory, dict)
    assert memory["extractor"] == "program"
    with pytest.raises(ConfigError, match="extractor"):
        agent_text(own)
    assert "extractor: model" in agent_text(MODEL)


async def test_secret_at_the_end_of_a_shown_problem_is_masked(store: Store) -> None:
    async def fail(*_: object) -> list[ExtractedFact]:
        raise ConfigError("no " * 162 + "sk-ant-api03-" + "Ab1" * 30)

    async with Runtime(store, agents=[agent_with(fail)], models=ScriptedModel(["Yes."])) as runtime:
        chat = await runtime.start("helper", subject="ana")
        await chat.send("I like tea.")
        await chat.end()
    (outcome,) = await outcomes(store, chat.id)
    assert outcome.problem is not None
    assert "no no" in outcome.problem
    assert "sk-ant" not in outcome.problem
