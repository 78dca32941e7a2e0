"""Stores the checkpoints and items of LangGraph; needs the extra ``langgraph``.

    with perdure.blocking.open("sqlite:///agents.db") as store:
        graph = builder.compile(checkpointer=PerdureSaver(store), store=PerdureStore(store))
        graph.invoke(inputs, {"configurable": {"thread_id": "user-1"}})

docs/guides/langgraph.md has the details.
"""

from __future__ import annotations

from perdure.adapters.langgraph.migration import copy_checkpoints, copy_items
from perdure.adapters.langgraph.saver import PerdureSaver
from perdure.adapters.langgraph.store import PerdureStore

__all__ = ["PerdureSaver", "PerdureStore", "copy_checkpoints", "copy_items"]
