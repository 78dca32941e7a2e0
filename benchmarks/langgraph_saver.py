"""`python -m benchmarks.langgraph_saver [TURNS ...]`: a graph on our saver beside LangGraph's own.

Each turn of the graph stores three checkpoints. `memory` is the framework's in-memory saver: what
the others take beyond it is their own share. Times are of this machine at this moment.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from rich.console import Console
from rich.table import Table

import perdure
from perdure.adapters.langgraph import PerdureSaver

TURNS = (33, 100, 167)
"""About 100, 300 and 500 checkpoints, three a turn."""

AT: Any = {"configurable": {"thread_id": "t"}}
COLUMNS = ("turns", "saver", "total s", "CPU s", "ms/turn", "latest", "opened", "list 10", "MB")


def main() -> None:
    """Print a row for each saver and number of turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.langgraph_saver")
    parser.add_argument("turns", nargs="*", type=int, default=TURNS)
    table = Table(*COLUMNS)
    for turns in parser.parse_args().turns:
        for kind in ("memory", "perdure", "sqlite"):
            table.add_row(str(turns), kind, *(f"{each:.2f}" for each in measured(kind, turns)))
    Console().print(table)


def measured(kind: str, turns: int) -> list[float]:
    """Return the figures of one saver; reads are in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        with ExitStack() as stack:
            saver = opened(kind, folder, stack)
            begun, cpu = time.perf_counter(), time.process_time()
            newest = run(saver, turns)
            figures = [time.perf_counter() - begun, time.process_time() - cpu, newest]
            figures.append(best_ms(lambda: saver.get_tuple(AT)))
            list_ms = best_ms(lambda: list(saver.list(AT, limit=10)))
        with ExitStack() as stack:
            saver = opened(kind, folder, stack)
            figures.append(best_ms(lambda: saver.get_tuple(AT), times=1))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return [*figures, list_ms, size / 1e6]


def run(saver: Any, turns: int) -> float:
    """Run the graph; return the milliseconds of a turn in the last tenth."""

    def answer(_: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("a" * 500)]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    graph: Any = builder.compile(checkpointer=saver)
    last = max(1, turns // 10)
    begun = time.perf_counter()
    for turn in range(turns):
        if turn == turns - last:
            begun = time.perf_counter()
        graph.invoke({"messages": [("user", "q" * 500)]}, AT, durability="sync")
    return (time.perf_counter() - begun) / last * 1000


def opened(kind: str, folder: str, stack: ExitStack) -> Any:
    """Open the saver `kind` with its file in `folder`."""
    if kind == "memory":
        return InMemorySaver()
    if kind == "sqlite":
        return stack.enter_context(SqliteSaver.from_conn_string(f"{folder}/theirs.db"))
    address = f"sqlite:///{folder}/ours.db"
    return PerdureSaver(stack.enter_context(perdure.blocking.open(address, durability="normal")))


def best_ms(act: Callable[[], object], times: int = 3) -> float:
    """Return the shortest time of `act`. Units: milliseconds."""
    taken: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        act()
        taken.append((time.perf_counter() - begun) * 1000)
    return min(taken)


if __name__ == "__main__":
    main()
