"""A graph with a tool on a checkpoint saver; the process dies (SIGKILL) at a commit."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none

import perdure
from perdure.adapters.langgraph import PerdureSaver
from tests.fakes.deaths import exit_code_of

TURNS = 3
KINDS = ("perdure", "sqlite")
"""Kinds of savers: perdure's and LangGraph's own."""
THREAD: Any = {"configurable": {"thread_id": "t"}}


def run_and_die(folder: str, every: int) -> None:
    """Run each kind of saver to the end in folder ``0``, then once for each `every`-th commit.

    The run in folder N is killed at commit N. Each run is a fork of this process, which has
    loaded LangGraph. Prints how each run ended.
    """
    for kind in KINDS:
        commits = _ended(Path(folder) / kind / "0", kind, 0)
        for dies_at in range(1, commits + 1, every):
            _ended(Path(folder) / kind / str(dies_at), kind, dies_at)


def _ended(place: Path, kind: str, dies_at: int) -> int:
    place.mkdir(parents=True)

    def work() -> None:
        with saver_in(kind, place, dies_at) as saver:
            _run(place, saver)

    sys.stdout.write(f"{kind} {exit_code_of(work)}\n")
    sys.stdout.flush()
    return 0 if dies_at else int((place / "commits").read_text())


@contextmanager
def saver_in(kind: str, folder: Path, dies_at: int = -1) -> Generator[Any]:
    """Open the saver `kind`, which kills this process after the commit number `dies_at`.

    If `dies_at` is 0, the process prints the number of its commits at the end.
    """
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1
        if counted == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    if kind == "sqlite":
        connection = sqlite3.connect(
            folder / "s.db", check_same_thread=False, factory=_counting(count)
        )
        saver = SqliteSaver(connection)
        saver.setup()
        yield saver
        connection.close()
    else:
        with perdure.blocking.open(f"sqlite:///{folder / 's.db'}") as store:
            _count_commits(store, count)
            yield PerdureSaver(store)
    if dies_at == 0:
        (folder / "commits").write_text(str(counted))


def _counting(count: Any) -> type[sqlite3.Connection]:
    class Counting(sqlite3.Connection):
        def commit(self) -> None:
            is_change = self.in_transaction
            super().commit()
            if is_change:
                count()

    return Counting


def _count_commits(store: perdure.blocking.Store, count: Any) -> None:
    backend: Any = store.asynchronous.backend
    commit = backend.commit

    async def counting(*arguments: Any, **options: Any) -> Any:
        done = await commit(*arguments, **options)
        count()
        return done

    backend.commit = counting


def graph_in(folder: Path, saver: Any) -> Any:
    """Return a graph whose tool writes the number of the question that caused the call."""

    def ask(state: MessagesState) -> dict[str, Any]:
        number = sum(message.type == "human" for message in state["messages"])
        call: Any = {"name": "count", "args": {}, "id": f"c{number}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def count(state: MessagesState) -> dict[str, Any]:
        last: Any = state["messages"][-1]
        call: str = last.tool_calls[0]["id"]
        with (folder / "ran").open("a") as file:
            file.write(f"{call}\n")
        return {"messages": [ToolMessage(f"counted {call}", tool_call_id=call)]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("count", count)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "count")
    builder.add_edge("count", END)
    return builder.compile(checkpointer=saver)


def _run(folder: Path, saver: Any) -> None:
    graph = graph_in(folder, saver)
    for turn in range(TURNS):
        said = {"messages": [("user", f"question {turn}")]}
        graph.invoke(said, THREAD, durability="sync")
        (folder / "done").write_text(str(turn + 1))
