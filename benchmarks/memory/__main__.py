"""``python -m benchmarks.memory`` or ``make bench-memory``: quality and speed of recall.

Each question of ``data`` is asked in a store with its conversation, or, with ``--together``, in one
store with all conversations. Recall is compared with `store.search` for the words of the question,
and with a reference implementation of its ranking. With ``--embedder``, questions are also recalled
by meaning. ``--techniques`` disables each part of the ranking and shows its gain on each half of
the conversations. ``--fit`` fits the weights on one half and evaluates them on the other.
``--synthetic N`` measures the times with N messages.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.memory.conversations import Collection, Conversation, problems
from benchmarks.memory.measures import GROUPS, Means, Outcome, means, outcomes_of
from benchmarks.memory.memories import filled, reference
from benchmarks.memory.reference import STANDARD
from benchmarks.memory.speed import measure_speed
from benchmarks.memory.techniques import Rankings, table_of_fits, table_of_gains
from perdure.client.memory.embedding import resolved
from perdure.models.embedders.protocol import Embedder
from tests.fakes.postgres import serving

RANKED = ("recall", "reference")
ASKERS = ("search", *RANKED)
CAPTION = """turn@10: the share of the relevant entries that are among the first 10 hits.
any@10: the share of the questions with a relevant session among the first 10 sessions.
mean@10: the share of the relevant sessions that are among the first 10 sessions."""


class _Arguments(argparse.Namespace):
    store: str | None
    postgres: bool
    asking: str | None
    together: bool
    techniques: bool
    fit: bool
    missed: bool
    synthetic: int
    embedder: str | None


def main() -> None:
    """Run the measurements that the command line selects."""
    arguments = _Arguments()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--store", help="address of an empty store, SQLite by default")
    parser.add_argument(
        "--postgres",
        action="store_true",
        help="measure times on a PostgreSQL server that only this benchmark uses",
    )
    parser.add_argument("--asking", choices=ASKERS, help="measure only this way of asking")
    parser.add_argument(
        "--together", action="store_true", help="store all conversations in one store"
    )
    parser.add_argument(
        "--techniques", action="store_true", help="print the gain of each technique"
    )
    parser.add_argument(
        "--fit", action="store_true", help="fit weights on one half and evaluate them on the other"
    )
    parser.add_argument(
        "--missed", action="store_true", help="print the questions whose entries were not found"
    )
    parser.add_argument(
        "--synthetic", type=int, default=0, metavar="N", help="measure the times with N messages"
    )
    parser.add_argument(
        "--embedder", metavar="NAME", help="also recall by meaning: static:FOLDER, minilm:FOLDER"
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
    chosen = arguments.embedder
    embedder = None if chosen is None else await resolved(chosen)
    if arguments.synthetic:
        with ExitStack() as stack:
            address = arguments.store
            if arguments.postgres:
                server = stack.enter_context(serving(is_own=True, is_quick=False))
                address = server.new_database()
            console.print(await measure_speed(arguments.synthetic, address, embedder))
        return
    if arguments.techniques or arguments.fit:
        table_of = table_of_gains if arguments.techniques else table_of_fits
        for asking in RANKED:
            if arguments.asking in {None, asking}:
                async with AsyncExitStack() as stack:
                    rankings = Rankings(asking, conversations, embedder)
                    await rankings.open(stack)
                    console.print(await table_of(rankings))
        return
    results = {
        name: await _asked(arguments, conversations, name)
        for name in ASKERS
        if arguments.asking in {None, name}
    }
    if embedder is not None:
        name = embedder.model.partition(":")[0]
        results[f"recall, {name}"] = await _asked(arguments, conversations, "recall", embedder)
    console.print(
        _table(
            results,
            "all conversations in one store"
            if arguments.together
            else "each conversation in its own store",
        )
    )
    if arguments.missed:
        for name, outcomes in results.items():
            _print_missed(console, name, outcomes)


async def _asked(
    arguments: _Arguments,
    conversations: Sequence[Conversation],
    name: str,
    embedder: Embedder | None = None,
) -> list[Outcome]:
    """Return the outcome of every question."""
    groups = [conversations] if arguments.together else [[each] for each in conversations]
    found = list[Outcome]()
    for number, group in enumerate(groups):
        if name == "reference":
            found += await outcomes_of(group, reference(group, STANDARD))
            continue
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-memory-"))
            address = arguments.store or f"sqlite:///{Path(folder) / 'memory.db'}"
            memory = await stack.enter_async_context(
                filled(address, group, f"{name}-{number}", embedder)
            )
            ask = memory.searched if name == "search" else memory.recalled
            found += await outcomes_of(group, ask)
    return found


def _table(results: dict[str, list[Outcome]], title: str) -> Table:
    table = Table(title=f"turn@10 / any@10 / mean@10, {title}", caption=CAPTION)
    table.add_column("questions")
    table.add_column("number", justify="right")
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


if __name__ == "__main__":
    main()
