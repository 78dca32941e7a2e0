"""A graph with a checkpoint saver, run in processes that a test can kill.

Each process is a fork of the process that a test starts, which has loaded LangGraph. The saver is
``perdure`` or ``sqlite`` (LangGraph's own). A process prints ``READY`` at its start. When
LangGraph returns a turn, the turn is stored, and the process prints it. A process with a name waits
for a line of input before it begins.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none

import perdure
from perdure.adapters.langgraph import PerdureSaver
from tests.fakes.forked import take_streams


def graph_with(saver: Any, name: str = "") -> Any:
    """Return a graph that answers each message with its number."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{name} answer {len(state['messages'])}")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def saver_at(kind: str, address: str) -> AbstractContextManager[Any]:
    """Open the checkpoint saver `kind` at `address`."""
    if kind == "sqlite":
        return SqliteSaver.from_conn_string(address)
    store = perdure.blocking.open(address)
    saver = PerdureSaver(store)

    class Opened(nullcontext[Any]):
        def __exit__(self, *exc: object) -> None:
            store.close()

    return Opened(saver)


def run_and_kill(addresses: Mapping[str, str], moments: Sequence[float]) -> None:
    """Run a graph on each saver and kill it after each number of seconds in `moments`.

    Prints the turns that each run returned before its end.
    """
    for number, moment in enumerate(moments):
        for kind, address in addresses.items():
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.dup2(writing, 1)
                _work(kind, address, f"k{number}", 10_000, "")
                os._exit(0)
            os.close(writing)
            with open(reading) as lines:  # noqa: PTH123 - a pipe has no path
                assert lines.readline() == "READY\n"
                time.sleep(moment)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                print(len(lines.readlines()), flush=True)  # noqa: T201 - the parent reads it


def run_together(address: str, thread: str, turns: int, names: Sequence[str]) -> None:
    """Run a worker for each name; all start together, on one thread of perdure's saver."""
    workers: list[tuple[int, int, int]] = []
    for name in names:
        its_input, tell = os.pipe()
        output, its_output = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(its_input, 0)
            os.dup2(its_output, 1)
            take_streams()
            _work("perdure", address, thread, turns, name)
            os._exit(0)
        os.close(its_input)
        os.close(its_output)
        workers.append((child, tell, output))
    for _, _, output in workers:
        assert os.read(output, len(b"READY\n")) == b"READY\n"
    for _, tell, _ in workers:
        os.write(tell, b"\n")
    for child, _, _ in workers:
        assert os.waitpid(child, 0)[1] == 0


def _work(kind: str, address: str, thread: str, turns: int, name: str) -> None:
    """Run the turns of one worker."""
    config = {"configurable": {"thread_id": thread}}
    with saver_at(kind, address) as saver:
        graph = graph_with(saver, name)
        print("READY", flush=True)  # noqa: T201 - the parent reads it
        if name:  # one of several workers: all begin together
            sys.stdin.readline()
        for turn in range(turns):
            said = {"messages": [("user", f"{name} question {turn}")]}
            graph.invoke(said, config, durability="sync")
            print(turn, flush=True)  # noqa: T201 - the parent reads it
