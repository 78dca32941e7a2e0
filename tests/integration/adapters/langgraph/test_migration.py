"""Threads and items of LangGraph's own SQLite files and PostgreSQL tables are copied once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import BaseStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore  # pyright: ignore[reportMissingTypeStubs] - it has none

import perdure
from perdure.adapters.langgraph import PerdureSaver, PerdureStore, copy_checkpoints, copy_items
from tests.integration.adapters.langgraph.children.graph import graph_with


@contextmanager
def theirs(kind: str, saver: Any, store: Any, place: Any, path: Path) -> Generator[tuple[Any, Any]]:
    """Open a saver and a store of LangGraph, which both create their tables."""
    address = place.take() if kind == "postgres" else str(path / "langgraph.db")
    with saver.from_conn_string(address) as made:
        made.setup()
        with store.from_conn_string(address) as items:
            items.setup()
            yield made, items
    if kind == "postgres":
        place.give_back(address)


KINDS = {"sqlite": (SqliteSaver, SqliteStore), "postgres": (PostgresSaver, PostgresStore)}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full_only)])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[tuple[Any, BaseStore]]:
    """A saver and a store of LangGraph on SQLite, and on PostgreSQL."""
    kind: str = request.param
    saver, store = KINDS[kind]
    place = request.getfixturevalue("postgres") if kind == "postgres" else None
    with theirs(kind, saver, store, place, tmp_path) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Generator[perdure.blocking.Store]:
    with perdure.blocking.open(f"sqlite:///{tmp_path / 'perdure.db'}") as opened:
        yield opened
        assert opened.verify().is_ok


def config(thread: str, **more: str) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def test_langgraph_threads_are_copied_once_and_can_continue(
    source: tuple[Any, Any], store: perdure.blocking.Store
) -> None:
    saver, _ = source
    old, ours = graph_with(saver), PerdureSaver(store)
    for thread in ("a", "b"):
        for question in ("one", "two"):
            old.invoke({"messages": [("user", question)]}, config(thread))
    first = list(old.get_state_history(config("b")))[-1]
    old.update_state(first.config, {"messages": [("user", "a branch")]})
    assert copy_checkpoints(saver, ours) == 13
    assert copy_checkpoints(saver, ours) == 0
    new = graph_with(ours)
    for thread in ("a", "b"):
        was, now = (list(each.get_state_history(config(thread))) for each in (old, new))
        for field in ("values", "metadata", "next", "created_at", "parent_config"):
            theirs, copied = ([getattr(state, field) for state in each] for each in (was, now))
            assert copied == theirs, field
    for graph in (old, new):
        graph.invoke({"messages": [("user", "three")]}, config("a"))
    said, copied = (
        [message.content for message in graph.get_state(config("a")).values["messages"]]
        for graph in (old, new)
    )
    assert copied == said
    assert len(said) == 6
    old.invoke({"messages": [("user", "four")]}, config("b"))
    assert copy_checkpoints(saver, ours, "b") == 3
    texts = [message.text for message in store.open("lg:b").messages()]
    assert texts[-2] == "four"


def test_langgraph_items_are_copied_once(
    source: tuple[Any, Any], store: perdure.blocking.Store
) -> None:
    _, items = source
    ours = PerdureStore(store)
    for number in range(230):
        items.put(("users", "ana"), f"{number:03}", {"text": f"remark {number}"})
    items.put(("users",), "all", {"text": "The lighthouse is on the cape."})
    items.put(("users", "ana", "deep"), "x", {"n": [1, None, 2.5], "é": "ü"})
    items.put(("other",), "x", {"text": "elsewhere"})
    assert copy_items(items, ours, ("users",)) == 232
    assert copy_items(items, ours, ("users",)) == 0
    items.put(("users", "ana"), "007", {"text": "changed"})
    assert copy_items(items, ours) == 2
    for namespace in ((), ("users", "ana"), ("users", "ana", "deep")):
        was, now = (
            {(item.namespace, item.key): item.value for item in each.search(namespace, limit=500)}
            for each in (items, ours)
        )
        assert now == was
    (found,) = ours.search(("users",), query="lighthouse")
    assert found.key == "all"
