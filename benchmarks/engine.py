"""Claim: a turn costs at most 2 ms besides its commits, on the scripted model.

Each turn is timed as a whole and its writes (commits, and the part of an answer that is kept while
it streams) by themselves; what is left is the engine: context, machine, tools, events. What its
thread computed is counted beside it, writes included: it depends least on what else the machine
does. Sessions have as many turns as an agent allows by default, so contexts are as long as they get
without compaction.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import perdure
from benchmarks.figures import Figure, Run, median, percentile
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.stores.protocol import Commit, Committed, Lease, SessionStore

TURNS = 50
SESSIONS = 8
LIMIT_MS = 2.0
ANSWER = "It is as you say, and there is little to add to it. " * 8


@perdure.tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


class TimedStore:
    """A store that adds up how long its writes take, and counts its commits."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.written_s = 0.0
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, commit: Commit) -> Committed:
        began = time.perf_counter()
        try:
            return await self._store.commit(commit)
        finally:
            self.written_s += time.perf_counter() - began
            self.commits += 1

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        began = time.perf_counter()
        await self._store.put_partial(lease, seq, content)
        self.written_s += time.perf_counter() - began


async def measure(run: Run) -> list[Figure]:
    """Turns without tools, and with two tool calls one after the other."""
    plain = await _turns(run, 0)
    with_tools = await _turns(run, 2)
    return [*_figures("a turn", plain), *_figures("a turn with two tool calls", with_tools)]


class _Turn:
    """Milliseconds of one turn: whole, besides its writes, computed by its thread; its commits."""

    def __init__(self, whole_ms: float, own_ms: float, computed_ms: float, commits: int) -> None:
        self.whole_ms = whole_ms
        self.own_ms = own_ms
        self.computed_ms = computed_ms
        self.commits = commits


async def _turns(run: Run, calls: int) -> list[_Turn]:
    found: list[_Turn] = []
    address = f"sqlite:///{Path(run.folder) / f'engine-{calls}.db'}"
    async with perdure.open(address) as store:
        timed = TimedStore(store.backend)
        store.backend = cast("SessionStore", timed)  # all else goes through to the real one
        model = ScriptedModel(_scenario(calls), clock=store.outside.clock)
        agent = Agent("bench", model="scripted:bench", tools=[look])
        runtime = Runtime(store, [agent], models=model)
        for _ in range(max(1, SESSIONS // 4) if run.is_quick else SESSIONS):
            chat = await runtime.start(agent)
            for _ in range(TURNS):
                written_s, commits = timed.written_s, timed.commits
                began, computed = time.perf_counter(), time.thread_time()
                await chat.send("And what do you say to this?")
                whole_s = time.perf_counter() - began
                computed_ms = (time.thread_time() - computed) * 1000
                own_ms = (whole_s - (timed.written_s - written_s)) * 1000
                turn = _Turn(whole_s * 1000, own_ms, computed_ms, timed.commits - commits)
                found.append(turn)
    return found


def _scenario(calls: int) -> Scenario:
    rules = [
        Reply(when=When(round=n + 1), steps=(Say("Let me look."), _call(n))) for n in range(calls)
    ]
    return Scenario(name="bench", rules=(*rules, Reply(steps=(Say(ANSWER),))))


def _call(n: int) -> CallTools:
    return CallTools((ScriptedCall("look", f'{{"where": "place {n}"}}'),))


def _figures(what: str, turns: list[_Turn]) -> list[Figure]:
    claim = f"engine, {what}"
    own = [turn.own_ms for turn in turns]
    return [
        Figure(claim, "p50", median([turn.whole_ms for turn in turns]), "ms"),
        Figure(claim, "p50 besides its writes", median(own), "ms", limit=LIMIT_MS),
        Figure(claim, "p99 besides its writes", percentile(own, 0.99), "ms"),
        Figure(claim, "p50 computed", median([turn.computed_ms for turn in turns]), "ms"),
        Figure(claim, "commits", median([turn.commits for turn in turns]), ""),
    ]
