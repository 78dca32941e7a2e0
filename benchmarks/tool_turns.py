"""Goal: a turn with two tool calls uses at most 2.5 ms of CPU outside commits, even with pins.

The CPU time of the turn's commits is measured by repeating the commits in another session of the
same store.
"""

from __future__ import annotations

from benchmarks.alone import alone
from benchmarks.engine import AT_ONCE, look
from benchmarks.figures import Figure, Run, median
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.session.messages import Message, assistant, user

ENTRIES = (100, 100_000)
PINS = 10
TURNS = 60
MOST_MS = 2.5
CALLS = 2


async def tool_turns(run: Run) -> list[Figure]:
    """Measure turns of a short and of a long session, without pins and with some."""
    figures: list[Figure] = []
    for entries in ENTRIES:
        for pins in (0, PINS):
            path = run.folder / f"tool-turns-{entries}-{pins}.db"
            async with alone(path, _scenario(), [look]) as sessions:
                await sessions.begin(_history(entries), AT_ONCE, pins)
                turns = [await sessions.turn("And now?") for _ in range(run.count(TURNS))][1:]
            claim = f"a turn with {CALLS} tool calls after {entries:,} entries, {pins} pins"
            computed = median([turn.computed_ms for turn in turns])
            figures += [
                Figure(claim, "p50 of its CPU time without commits", computed, "ms", limit=MOST_MS),
                Figure(
                    claim, "p50 of the whole turn", median([turn.whole_ms for turn in turns]), "ms"
                ),
            ]
    return figures


def _history(entries: int) -> list[Message]:
    text = "This is what was said, and there is little to add to it. " * 3
    return [assistant(text) if number % 2 else user(text) for number in range(entries)]


def _scenario() -> Scenario:
    rules = [
        Reply(
            when=When(round=number + 1),
            steps=(
                Say("Let me look."),
                CallTools((ScriptedCall("look", f'{{"where": "place {number}"}}'),)),
            ),
        )
        for number in range(CALLS)
    ]
    return Scenario(name="bench", rules=(*rules, Reply(steps=(Say("There is nothing."),))))
