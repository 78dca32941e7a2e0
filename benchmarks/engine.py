"""Claim: a turn costs at most 2 ms without its commits, on the scripted model.

Each turn is timed as a whole, by the wall clock. Directly afterwards, its parts are repeated
separately on the same store: its commits, byte for byte, in a second session with the same log; the
partial answers that it stored; the model's answers. The time of the turn minus the time of its
commits is the cost of the engine: context, machine, tools, events, thread switches. This cost
includes the partial answers and the model's answers, whose times are also shown separately. CPU
time is also shown separately, because it depends least on the load of the machine. The number of
reads is also shown; it is zero for a turn that directly follows another turn. Sessions have as many
turns as an agent allows by default; further sessions begin with a history. A turn of the workload
has no tool call or two tool calls, alternately.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import perdure
from benchmarks.alone import Turn, alone
from benchmarks.figures import Figure, Run, median, percentile
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.session.messages import Message, Usage, assistant, tool_call, tool_result, user

TURNS = 50
SESSIONS = 8
LIMIT_MS = 2.0
ANSWER = "It is as you say, and there is little to add to it. " * 8

HISTORIES = (10, 1_000, 10_000)
"""The numbers of entries with which some sessions begin."""

HISTORY_TURNS = 20
AT_ONCE = 500
MEAN = "mean of both kinds of turns"


@perdure.tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"nothing in {where}"


async def measure(run: Run) -> list[Figure]:
    """Measure turns without tools, with two successive tool calls, and after long histories."""
    sessions = max(1, SESSIONS // 4) if run.is_quick else SESSIONS
    plain = await _turns(run, 0, [0] * sessions)
    tools = await _turns(run, 2, [0] * sessions)
    both = "engine: turns with 0 and with 2 tool calls"
    found = [
        *_figures("engine: a turn without tool calls", plain),
        *_figures("engine: a turn with 2 tool calls", tools),
        _mean(both, f"p50 without commits, {MEAN}", "own_ms", (plain, tools), LIMIT_MS),
        _mean(both, f"p50 of CPU time without commits, {MEAN}", "computed_ms", (plain, tools)),
    ]
    for entries in HISTORIES:
        after = [await _turns(run, calls, [entries], HISTORY_TURNS) for calls in (0, 2)]
        claim = f"engine: turns with 0 and with 2 tool calls, after {entries:,} entries"
        found.append(_mean(claim, f"p50 without commits and model calls, {MEAN}", "rest_ms", after))
        found.append(
            _mean(claim, f"p50 of the model calls, repeated alone, {MEAN}", "model_ms", after)
        )
    return found


async def _turns(run: Run, calls: int, histories: list[int], count: int = TURNS) -> list[Turn]:
    """Return the turns of a session for each of `histories`, without the first turn of each."""
    found: list[Turn] = []
    name = f"engine-{calls}-{histories[0]}.db"
    async with alone(Path(run.folder) / name, _scenario(calls), [look]) as sessions:
        for entries in histories:
            await sessions.begin(_history(entries), AT_ONCE)
            turns = [await sessions.turn("And what do you say to this?") for _ in range(count)]
            found += turns[1:]
    return found


def _history(entries: int) -> list[Message]:
    said: list[Message] = []
    for n in range(entries // 4):
        said += [
            user(f"And what of number {n}?"),
            assistant("Let me look.", tool_call(f"c{n}", "look", {"where": f"place {n}"})),
            tool_result(f"c{n}", f"nothing in place {n}"),
            assistant(ANSWER, usage=Usage(100 + n, 100)),
        ]
    return said


def _scenario(calls: int) -> Scenario:
    rules = [
        Reply(when=When(round=n + 1), steps=(Say("Let me look."), _call(n))) for n in range(calls)
    ]
    return Scenario(name="bench", rules=(*rules, Reply(steps=(Say(ANSWER),))))


def _call(n: int) -> CallTools:
    return CallTools((ScriptedCall("look", f'{{"where": "place {n}"}}'),))


def _figures(claim: str, turns: list[Turn]) -> list[Figure]:
    own = [turn.own_ms for turn in turns]

    def p50(what: str, name: str, unit: str = "ms") -> Figure:
        return Figure(claim, what, median([getattr(turn, name) for turn in turns]), unit)

    commits = median([turn.commits_ms for turn in turns])
    raw = median([turn.raw_ms for turn in turns])
    return [
        p50("p50 of the whole turn", "whole_ms"),
        Figure(claim, "p50 of its commits, repeated alone", commits, "ms", raw),
        Figure(claim, "p50 of the turn without its commits", median(own), "ms", limit=LIMIT_MS),
        Figure(claim, "p99 of the turn without its commits", percentile(own, 0.99), "ms"),
        p50("p50 of its writes outside commits, repeated alone", "kept_ms"),
        p50("p50 of its model calls, repeated alone", "model_ms"),
        p50("p50 of its CPU time without commits", "computed_ms"),
        p50("commits per turn (p50)", "commits", ""),
        p50("reads per turn (p50)", "reads", ""),
    ]


def _mean(
    claim: str,
    what: str,
    name: str,
    turns: list[list[Turn]] | tuple[list[Turn], ...],
    limit: float | None = None,
) -> Figure:
    middles = [median([getattr(turn, name) for turn in each]) for each in turns]
    return Figure(claim, what, statistics.fmean(middles), "ms", limit=limit)
