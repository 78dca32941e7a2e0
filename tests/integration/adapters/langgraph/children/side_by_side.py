"""A graph whose model makes three tool calls in one message; its saver can kill the process."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from langgraph.types import Send, interrupt

from tests.fakes.deaths import exit_code_of
from tests.integration.adapters.langgraph.children.runner import KINDS, THREAD, saver_in

CALLS = 3
TURNS = 2


def graph_in(folder: Path, saver: Any, *, is_asked: bool = False) -> Any:
    """Return a graph that runs each call as a task; the tasks finish in reverse order.

    With `is_asked`, each call waits for a person, whose answer is its result.
    """

    def ask(state: MessagesState) -> dict[str, Any]:
        if state["messages"][-1].type == "tool":
            return {"messages": [AIMessage("Well.")]}
        turn = sum(message.type == "human" for message in state["messages"])
        calls: Any = [
            {"name": "look", "args": {"number": number}, "id": f"t{turn}c{number}"}
            for number in range(CALLS)
        ]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    def look(call: Any) -> dict[str, Any]:
        turn, number = str(call["id"]).partition("c")[0], int(call["args"]["number"])
        saw = interrupt(call["id"]) if is_asked else f"saw {call['id']}"
        while number < CALLS - 1 and not (folder / f"{turn}c{number + 1}").exists():
            time.sleep(0.001)
        with (folder / call["id"]).open("a") as file:
            file.write("x")
        return {"messages": [ToolMessage(saw, tool_call_id=call["id"])]}

    def wanted(state: MessagesState) -> Any:
        calls = getattr(state["messages"][-1], "tool_calls", None)
        return [Send("look", call) for call in calls] if calls else END

    builder: Any = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("look", look)
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", wanted, ["look", END])
    builder.add_edge("look", "ask")
    return builder.compile(checkpointer=saver)


def run_and_die(folder: str) -> None:
    """Run each kind of saver to the end in folder ``0``, then once for each commit of this run.

    The run in folder N is killed at commit N. Prints how each run ended.
    """
    for kind in KINDS:
        _ended(Path(folder) / kind / "0", kind, 0)
        commits = int((Path(folder) / kind / "0" / "commits").read_text())
        for dies_at in range(1, commits + 1):
            _ended(Path(folder) / kind / str(dies_at), kind, dies_at)


def _ended(place: Path, kind: str, dies_at: int) -> None:
    place.mkdir(parents=True)

    def work() -> None:
        with saver_in(kind, place, dies_at) as saver:
            graph = graph_in(place, saver)
            for turn in range(TURNS):
                said = {"messages": [("user", f"question {turn}")]}
                graph.invoke(said, THREAD, durability="sync")

    sys.stdout.write(f"{kind} {exit_code_of(work)}\n")
    sys.stdout.flush()
