"""``python -m benchmarks.memory``; ``make bench-memory``: how well recall answers, how fast.

Each question of ``data`` is asked in a store that holds its conversation, or, with ``--together``,
in one that holds all of them. `store.search` with the words of the question is the base line.
``--techniques`` switches each part of the ranking off and shows what it gains on each half;
``--fit`` fits the weights on one half and reports the other. ``--synthetic N`` measures times.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.memory.conversations import Collection, Conversation, problems
from benchmarks.memory.measures import GROUPS, Means, Outcome, means, outcome
from benchmarks.memory.memories import Asker, filled, reference
from benchmarks.memory.reference import STANDARD, WITHOUT, Techniques
from benchmarks.memory.speed import measure_speed

ASKERS = ("search", "reference")
FACTORS = (0.0, 0.5, 0.75, 1.0, 1.33, 2.0)
FITTED = ("context", "own", "session", "speaker", "date", "time", "answers", "asks", "has_question")


class _Arguments(argparse.Namespace):
    store: str | None
    asking: str | None
    together: bool
    techniques: bool
    fit: bool
    missed: bool
    synthetic: int


def main() -> None:
    """Run what was asked for."""
    arguments = _Arguments()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--store", help="address of an empty store; SQLite in a folder by default")
    parser.add_argument("--asking", choices=ASKERS, help="only this one")
    parser.add_argument("--together", action="store_true", help="all conversations in one store")
    parser.add_argument("--techniques", action="store_true", help="the gain of each technique")
    parser.add_argument("--fit", action="store_true", help="fit weights on the other half")
    parser.add_argument(
        "--missed", action="store_true", help="print questions without their entries"
    )
    parser.add_argument(
        "--synthetic", type=int, default=0, metavar="N", help="times with N messages"
    )
    parser.parse_args(namespace=arguments)
    conversations = Collection().conversations
    wrong = [each for conversation in conversations for each in problems(conversation)]
    if wrong:
        raise SystemExit("\n".join(wrong))
    asyncio.run(_measure(arguments, conversations))


async def _measure(arguments: _Arguments, conversations: Sequence[Conversation]) -> None:
    console = Console()
    console.width = max(console.width, 112)
    if arguments.synthetic:
        console.print(await measure_speed(arguments.synthetic, arguments.store))
        return
    if arguments.techniques:
        console.print(await _techniques(conversations))
        return
    if arguments.fit:
        console.print(await _fit(conversations))
        return
    results = {
        name: await _asked(arguments, conversations, name)
        for name in ASKERS
        if arguments.asking in {None, name}
    }
    console.print(_table(results, "all in one store" if arguments.together else "each by itself"))
    if arguments.missed:
        for name, outcomes in results.items():
            _print_missed(console, name, outcomes)


async def _asked(
    arguments: _Arguments, conversations: Sequence[Conversation], name: str
) -> list[Outcome]:
    """The outcome of every question."""
    groups = [conversations] if arguments.together else [[each] for each in conversations]
    found = list[Outcome]()
    for group in groups:
        if name == "reference":
            found += await _outcomes(group, reference(group, STANDARD))
            continue
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-memory-"))
            address = arguments.store or f"sqlite:///{Path(folder) / 'memory.db'}"
            memory = await stack.enter_async_context(filled(address, group))
            found += await _outcomes(group, memory.searched)
    return found


async def _outcomes(group: Sequence[Conversation], ask: Asker) -> list[Outcome]:
    return [
        outcome(conversation, question, await ask(question.question))
        for conversation in group
        for question in conversation.questions
    ]


def _table(results: dict[str, list[Outcome]], title: str) -> Table:
    table = Table(title=f"turn@10 / any@10 / mean@10, {title}")
    table.add_column("questions")
    table.add_column("n", justify="right")
    for name in results:
        table.add_column(name, justify="right")
    for group, belongs in GROUPS.items():
        rows = [means(list(filter(belongs, each))) for each in results.values()]
        if rows and rows[0].count:
            table.add_row(group, str(rows[0].count), *map(_shown, rows))
    return table


def _shown(row: Means) -> str:
    return f"{row.turn:.3f} / {row.any:.3f} / {row.mean:.3f}"


def _print_missed(console: Console, name: str, outcomes: Sequence[Outcome]) -> None:
    for each in outcomes:
        if each.turn < 1:
            places = ", ".join(f"{one.session}/{one.entry}" for one in each.question.evidence)
            console.print(
                f"{name}: {each.turn:.2f} {each.question.question} ({places})", markup=False
            )


async def _halves(conversations: Sequence[Conversation], techniques: Techniques) -> list[Means]:
    """The means of the reference on half 1, half 2 and all."""
    found = list[Outcome]()
    for each in conversations:
        found += await _outcomes([each], reference([each], techniques))
    kinds: list[Callable[[Outcome], bool]] = [GROUPS["half 1"], GROUPS["half 2"], GROUPS["all"]]
    return [means(list(filter(kind, found))) for kind in kinds]


async def _techniques(conversations: Sequence[Conversation]) -> Table:
    table = Table(title="reference: turn@10 without each technique, and what it gains")
    for column in ("without", "half 1", "half 2", "all", "gain half 1", "gain half 2"):
        table.add_column(column, justify="left" if column == "without" else "right")
    whole = await _halves(conversations, STANDARD)
    table.add_row("(nothing)", *(f"{each.turn:.3f}" for each in whole), "", "")
    for name, techniques in WITHOUT.items():
        rows = await _halves(conversations, techniques)
        gains = [f"{a.turn - b.turn:+.3f}" for a, b in zip(whole[:2], rows[:2], strict=True)]
        table.add_row(name, *(f"{each.turn:.3f}" for each in rows), *gains)
    rows = await _halves(conversations, STANDARD._replace(passages=True))
    gains = [f"{b.turn - a.turn:+.3f}" for a, b in zip(whole[:2], rows[:2], strict=True)]
    table.add_row("(with passages)", *(f"{each.turn:.3f}" for each in rows), *gains)
    return table


async def _fit(conversations: Sequence[Conversation]) -> Table:
    """Weights by coordinate search on one half, reported on the other."""
    table = Table(title="reference: turn@10 with weights fitted on one half")
    for column in ("fitted on", "reported on", "starting weights", "fitted weights", "weights"):
        table.add_column(column)
    for fitted in (1, 2):
        chosen = [each for each in conversations if each.listed.half == fitted]
        others = [each for each in conversations if each.listed.half != fitted]
        best = await _best(chosen)
        before, after = [(await _halves(others, each))[2].turn for each in (STANDARD, best)]
        weights = ", ".join(f"{name} {getattr(best, name):g}" for name in FITTED)
        table.add_row(
            f"half {fitted}", f"half {3 - fitted}", f"{before:.3f}", f"{after:.3f}", weights
        )
    return table


async def _best(conversations: Sequence[Conversation]) -> Techniques:
    best, reached = STANDARD, (await _halves(conversations, STANDARD))[2].turn
    for name in FITTED:
        start = getattr(best, name)
        for factor in FACTORS:
            tried = best._replace(**{name: start * factor})
            value = (await _halves(conversations, tried))[2].turn
            if value > reached + 0.0005:
                best, reached = tried, value
    return best


if __name__ == "__main__":
    main()
