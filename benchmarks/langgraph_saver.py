"""`python -m benchmarks.langgraph_saver [TURNS ...]`: a graph on our saver and on LangGraph's own.

Each turn of the graph stores three checkpoints. `memory` is the framework's in-memory saver. The
cost of another saver is its time minus the time of `memory`. Times depend on this machine and its
load.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none

import perdure
from benchmarks.side_by_side import Meter, megabytes, show
from perdure.adapters.langgraph import PerdureSaver

TURNS = (33, 100, 167)
"""Numbers of turns: with three checkpoints a turn, about 100, 300 and 500 checkpoints."""

AT: Any = {"configurable": {"thread_id": "t"}}
WARM = 3
"""How often one measurement repeats a read."""


def main() -> None:
    """Print the rows of each number of turns."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.langgraph_saver")
    parser.add_argument("turns", nargs="*", type=int, default=TURNS)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for turns in given.turns:
        meters = {kind: Meter() for kind in ("perdure", "sqlite", "memory")}
        for _ in range(given.rounds):
            for kind, meter in meters.items():
                measure(kind, turns, meter)
        ours, theirs, memory = meters.values()
        ratios = {
            "growth of our share": ours.growth("turn, first half", "turn, last half", memory),
            "growth of theirs": theirs.growth("turn, first half", "turn, last half", memory),
            "file, ours of theirs": ours.wall["file MB"] / theirs.wall["file MB"],
        }
        show(f"LangGraph, {3 * turns} checkpoints", ours, theirs, ratios)


def measure(kind: str, turns: int, meter: Meter) -> None:
    """Run the graph on a saver, read it, and read it again after opening the file."""
    with tempfile.TemporaryDirectory() as folder:
        with ExitStack() as stack:
            saver = opened(kind, folder, stack)
            graph = graph_on(saver)
            run(graph, 1)
            half = turns // 2
            with meter.row("turn, first half", half - 1):
                run(graph, half - 1)
            with meter.row("turn, last half", turns - half):
                run(graph, turns - half)
            with meter.row("latest, warm", WARM):
                for _ in range(WARM):
                    saver.get_tuple(AT)
            with meter.row("list 10, warm", WARM):
                for _ in range(WARM):
                    assert len(list(saver.list(AT, limit=10))) == 10
        if kind == "memory":
            return
        meter.note("file MB", megabytes(folder))
        for name in ("latest", "list 10"):
            with ExitStack() as stack:
                with meter.row("opening"):
                    saver = opened(kind, folder, stack)
                with meter.row(f"{name}, first after opening"):
                    if name == "latest":
                        saver.get_tuple(AT)
                    else:
                        list(saver.list(AT, limit=10))


def graph_on(saver: Any) -> Any:
    """Return a graph of one node that answers with 500 characters."""

    def answer(_: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("a" * 500)]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def run(graph: Any, turns: int) -> None:
    """Run the graph."""
    for _ in range(turns):
        graph.invoke({"messages": [("user", "q" * 500)]}, AT, durability="sync")


def opened(kind: str, folder: str, stack: ExitStack) -> Any:
    """Open the saver `kind` with its file in `folder`."""
    if kind == "memory":
        return InMemorySaver()
    if kind == "sqlite":
        return stack.enter_context(SqliteSaver.from_conn_string(f"{folder}/theirs.db"))
    address = f"sqlite:///{folder}/ours.db"
    return PerdureSaver(stack.enter_context(perdure.blocking.open(address, durability="normal")))


if __name__ == "__main__":
    main()
