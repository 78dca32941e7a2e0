"""A graph of LangGraph on a store, offline: checkpoints, and a store of memories.

python examples/adapters/langgraph_thread.py
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import (  # pyright: ignore[reportMissingTypeStubs] - it has none
    END,
    START,
    MessagesState,
    StateGraph,
)
from langgraph.store.base import BaseStore

import perdure
from perdure.adapters.langgraph import PerdureSaver, PerdureStore


def answer(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
    """Answer, and remember the question."""
    store.put(("users", "ana"), str(len(state["messages"])), {"asked": state["messages"][-1].text})
    return {"messages": [AIMessage(f"I have read {len(state['messages'])} messages.")]}


def main() -> None:
    """Run two turns, and read them from the store."""
    with perdure.blocking.open("memory:") as store:
        builder: Any = StateGraph(MessagesState)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", END)
        memories = PerdureStore(store)
        graph: Any = builder.compile(checkpointer=PerdureSaver(store), store=memories)
        config: Any = {"configurable": {"thread_id": "user-1"}}
        for question in ("Where is the lighthouse?", "How high is it?"):
            graph.invoke({"messages": [("user", question)]}, config)
        print([message.text for message in store.open("lg:user-1").messages()])
        print([item.value for item in memories.search(("users",), query="lighthouse")])


main()
