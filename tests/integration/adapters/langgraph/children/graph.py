"""A graph with a checkpoint saver, run in a process that may be killed.

    graph.py SAVER ADDRESS THREAD TURNS NAME

SAVER is ``perdure`` or ``sqlite`` (LangGraph's own). Prints ``READY`` at its start, and each turn
when LangGraph returns it: its state is stored then. With a NAME it begins when it reads a line.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none

import perdure
from perdure.adapters.langgraph import PerdureSaver


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


def main() -> None:
    """Run the turns of one worker."""
    kind, address, thread, turns, name = sys.argv[1:]
    config = {"configurable": {"thread_id": thread}}
    with saver_at(kind, address) as saver:
        graph = graph_with(saver, name)
        print("READY", flush=True)  # noqa: T201 - the parent reads it
        if name:  # one of several workers: all begin together
            sys.stdin.readline()
        for turn in range(int(turns)):
            said = {"messages": [("user", f"{name} question {turn}")]}
            graph.invoke(said, config, durability="sync")
            print(turn, flush=True)  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main()
