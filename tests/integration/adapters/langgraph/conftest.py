"""LangGraph in the process that forks the children of tests: each child would import it in 1 s."""

from __future__ import annotations

from tests.fakes.forked import preload

preload("tests.integration.adapters.langgraph.children.side_by_side")
