"""Agents whose turns write texts of a known size: prose and code of this repository."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

from perdure import Agent, Runtime, Store, tool
from perdure.client.agents.runners import RunnerName
from perdure.client.clock import SystemClock
from perdure.engine.turns.config import Limits
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall
from perdure.models.scripted import ScriptedModel

ROOT = Path(__file__).parents[1]
MESSAGE_CHARS, ANSWER_CHARS, RESULT_CHARS = 200, 800, 1_000
CALLS = 2
TURNS = 200
"""The maximum number of turns of a session."""

_STRIDE = 7_919


@cache
def _corpus(pattern: str) -> str:
    return "\n".join(path.read_text() for path in sorted(ROOT.glob(pattern)))


def message(number: int) -> str:
    """Return the text of a user message, different for each number."""
    return _part("docs/decisions/*.md", number, MESSAGE_CHARS)


def _part(pattern: str, number: int, chars: int) -> str:
    text = _corpus(pattern)
    start = number * _STRIDE % (len(text) - chars)
    return text[start : start + chars]


@tool(effect="read")
async def look(number: int) -> str:
    """Read a part of a file."""
    return _part("src/perdure/client/*.py", number, RESULT_CHARS)


@tool(effect="read")
async def rest(seconds: float) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return "rested"


def _model() -> ScriptedModel:
    answers = [Reply(steps=(Say(_part("docs/*.md", n, ANSWER_CHARS)),)) for n in range(TURNS)]
    tools: list[Reply] = []
    for number, answer in enumerate(answers):
        for call in range(CALLS):
            asked = ScriptedCall("look", f'{{"number": {number * CALLS + call}}}')
            tools.append(Reply(steps=(CallTools((asked,)),)))
        tools.append(answer)
    long = Reply(steps=(CallTools((ScriptedCall("rest", '{"seconds": 600}'),)),))
    return ScriptedModel(
        Scenario(name="plain", sequence=tuple(answers)),
        Scenario(name="tools", sequence=tuple(tools)),
        Scenario(name="long", sequence=(long,)),
        clock=SystemClock(),
    )


_LIMITS = Limits(max_turns=TURNS)
PLAIN = Agent("plain", model="scripted:plain", limits=_LIMITS)
TOOLS = Agent("tools", model="scripted:tools", tools=[look], limits=_LIMITS)
LONG = Agent("long", model="scripted:long", tools=[rest])


def runtime(store: Store, runner: RunnerName | None = None) -> Runtime:
    """Return the runtime of a program, or of a worker."""
    return Runtime(store, agents=[PLAIN, TOOLS, LONG], models=_model(), runner=runner)
