"""``kill -9`` between the end of a session and its extraction: the facts are stored once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

import perdure
from perdure import Agent, MemoryConfig, Runtime
from perdure.memory.episodes import Episode
from perdure.memory.extraction import ExtractedFact
from perdure.session.entries import Entry
from perdure.session.memory.facts import Fact
from perdure.testing import ScriptedModel
from tests.crash.children import extractor
from tests.fakes.forked import preload, run_forked

preload(extractor.__name__)


def test_facts_of_a_killed_extraction_are_stored_once(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 's.db'}"
    assert run_forked(extractor.run, address).code == -signal.SIGKILL
    asyncio.run(extract_twice(address))


async def extract_twice(address: str) -> None:
    """Check that the first of two runtimes captures the facts that the killed process did not."""
    calls: list[str] = []

    async def extract(
        episode: Episode, entries: Sequence[Entry], known: Sequence[Fact]
    ) -> list[ExtractedFact]:
        calls.append(episode.id)
        said = [ExtractedFact(text="Ana likes tea", sources=(entries[0].id,))]
        return said if len(calls) == 1 else []

    agent = Agent("helper", model="scripted:any", memory=MemoryConfig(extractor=extract))
    async with perdure.open(address) as store:
        (episode,) = await store.memory.episodes(subject="ana")
        assert episode.extraction == "due"
        for _ in range(2):
            async with Runtime(store, agents=[agent], models=ScriptedModel(["Hello"])) as runtime:
                other = await runtime.start("helper", subject="ben")
                await other.send("Nothing to remember")
                await other.end()
        assert calls[0] == episode.id
        assert len(calls) == 3
        (fact,) = await store.memory.facts(subject="ana")
        assert fact.text == "Ana likes tea"
        assert await store.memory.facts(subject="ben") == []
        assert {each.extraction for each in await store.memory.episodes(scope="namespace")} == {
            "done"
        }
        assert (await store.verify()).is_ok
