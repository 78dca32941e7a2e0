"""The memory of a store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Runtime, user
from perdure.errors import WrongArgument
from perdure.testing import ScriptedModel

WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import perdure
with perdure.blocking.open(sys.argv[1]) as store:
    print([hit.text for hit in store.memory.recall("the moon and the boats")])
"""


async def test_recall_with_and_without_numpy_gives_the_same_hits(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'store.db'}"
    async with perdure.open(address) as store:
        for number in range(3):
            session = await store.create()
            await session.append_many([user(f"the moon {number} over boat {n}") for n in range(9)])
        hits = await store.memory.recall("the moon and the boats")

    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", WITHOUT_NUMPY, address],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str([hit.text for hit in hits])


async def test_recall_limited_to_sessions_returns_no_hit_from_other_sessions() -> None:
    async with perdure.open("memory:") as store:
        one, other = await store.create(), await store.create()
        for session in (one, other):
            await session.append(user("the moon"))
        for sessions, without, wanted in (
            ([one.id], (), {one.id}),
            (None, [one.id], {other.id}),
            ([one.id], [one.id], set[str]()),
            ((), (), set[str]()),
        ):
            hits = await store.memory.recall("moon", sessions=sessions, without=without)
            assert {hit.session_id for hit in hits} == wanted


async def test_recall_for_an_agent_finds_only_sessions_of_that_agent() -> None:
    agents = [Agent("helper", model="x:y"), Agent("other", model="x:y")]
    async with perdure.open("memory:") as store:
        model = ScriptedModel(["the moon"] * 3)
        async with Runtime(store, agents=agents, models=model) as runtime:
            for agent, subject in (("helper", None), ("other", None), ("helper", "ana")):
                chat = await runtime.start(agent, subject=subject, id=f"{agent}-{subject}")
                await chat.send("Where is the moon?")
        for arguments, wanted in (
            ({}, {"helper-None", "other-None"}),
            ({"agent": "helper"}, {"helper-None"}),
            ({"agent": "helper", "subject": "ana"}, {"helper-ana"}),
            ({"agent": "helper", "scope": "agent"}, {"helper-None", "helper-ana"}),
            ({"agent": "nobody"}, set[str]()),
        ):
            options: dict[str, Any] = arguments
            hits = await store.memory.recall("moon", **options)
            assert {hit.session_id for hit in hits} == wanted, arguments
        with pytest.raises(WrongArgument, match="agent"):
            await store.memory.recall("moon", scope="agent")


@pytest.mark.parametrize("name", ["half \ud800", "a\0b"])
async def test_invalid_agent_name_raises_wrong_argument(name: str, tmp_path: Path) -> None:
    async with perdure.open("memory:") as store:
        memory = store.memory
        for call in (
            memory.recall("moon", agent=name),
            memory.recall("moon", knowledge_of=name),
            memory.facts(agent=name),
            memory.episodes(agent=name),
            memory.remember("the moon", agent=name),
            memory.import_folder(tmp_path, agent=name),
        ):
            with pytest.raises(WrongArgument, match="cannot hold"):
                await call
