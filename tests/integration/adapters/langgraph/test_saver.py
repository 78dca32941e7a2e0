"""`PerdureSaver` under real graphs: time travel, interrupts, deletion, two workers, kills."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

import perdure
from perdure.adapters.langgraph import PerdureSaver
from perdure.errors import SessionNotFound
from tests.fakes.forked import run_forked
from tests.fakes.samples import FOR_LONG, rounds, with_larger
from tests.integration.adapters.conftest import POSTGRES_LATER
from tests.integration.adapters.langgraph.children.graph import (
    graph_with,
    run_and_kill,
    run_together,
    saver_at,
)


def config(thread: str = "t", **more: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def texts(state: Any) -> list[str]:
    return [message.content for message in state.values.get("messages", [])]


def test_messages_of_a_reopened_graph_form_one_session(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        graph = graph_with(PerdureSaver(store))
        graph.invoke({"messages": [("user", "Where is the whale?")]}, config())
    with perdure.blocking.open(store_address) as store:
        graph = graph_with(PerdureSaver(store))
        graph.invoke({"messages": [("user", "And now?")]}, config())
        said = ["Where is the whale?", " answer 1", "And now?", " answer 3"]
        assert texts(graph.get_state(config())) == said
        session = store.open("lg:t")
        assert [message.text for message in session.messages()] == said
        assert [hit.stream for hit in store.search("whale")] == ["lg:t"]
        assert len(list(graph.get_state_history(config()))) == 6


def test_update_of_old_state_creates_branch(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        graph = graph_with(PerdureSaver(store))
        for question in ("one", "two"):
            graph.invoke({"messages": [("user", question)]}, config())
        old = list(graph.get_state_history(config()))[3]
        changed = graph.update_state(old.config, {"messages": [("user", "other")]})
        assert texts(graph.get_state(changed)) == ["one", " answer 1", "other"]
        assert texts(graph.get_state(old.config)) == ["one", " answer 1"]
        assert texts(graph.get_state(config())) == ["one", " answer 1", "other"]


class Form(TypedDict, total=False):
    name: str


def test_interrupted_graph_resumes_in_another_process(store_address: str) -> None:
    def ask(state: Form) -> Form:
        return {"name": interrupt("name?")}

    builder: Any = StateGraph(Form)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    with perdure.blocking.open(store_address) as store:
        paused = builder.compile(checkpointer=PerdureSaver(store)).invoke({}, config())
        assert paused["__interrupt__"][0].value == "name?"
    with perdure.blocking.open(store_address) as store:
        graph = builder.compile(checkpointer=PerdureSaver(store))
        assert graph.invoke(Command(resume="Ada"), config()) == {"name": "Ada"}


async def test_async_graph_runs_with_an_async_store(store_address: str) -> None:
    async with perdure.open(store_address) as store:
        saver = PerdureSaver(store)
        graph = graph_with(saver)
        await graph.ainvoke({"messages": [("user", "hello")]}, config())
        assert texts(await graph.aget_state(config())) == ["hello", " answer 1"]
        with pytest.raises(TypeError, match=r"perdure\.blocking\.open"):
            saver.get_tuple(config())


def test_blocking_store_works_on_every_event_loop(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        graph = graph_with(PerdureSaver(store))
        for question in ("one", "two"):
            said = {"messages": [("user", question)]}
            asyncio.run(graph.ainvoke(said, config()))
        assert texts(graph.get_state(config())) == ["one", " answer 1", "two", " answer 3"]


def test_writes_stored_before_their_checkpoint_are_returned_once(
    store_address: str,
) -> None:
    with perdure.blocking.open(store_address) as store:
        saver = PerdureSaver(store)
        checkpoint = empty_checkpoint()
        at = config(checkpoint_id=checkpoint["id"])
        saver.put_writes(at, [("a", 1), ("__error__", "first")], "task")
        saver.put(config(), checkpoint, {}, {})
        saver.put_writes(at, [("a", 2), ("__error__", "last")], "task")
        found = saver.get_tuple(at)
        assert found is not None
        assert found.pending_writes == [("task", "__error__", "last"), ("task", "a", 1)]


def test_prune_erases_the_bytes_of_every_state_except_the_current_state(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'a.db'}"
    with perdure.blocking.open(address) as store:
        saver = PerdureSaver(store)
        graph = graph_with(saver)
        for turn in range(40):
            graph.invoke({"messages": [("user", f"question {turn} {'x' * 200}")]}, config())
        before = texts(graph.get_state(config()))
        graph.update_state(config(), {"messages": [("user", "SECRET")]})
        doomed = graph.get_state(config()).config
        graph.update_state(list(graph.get_state_history(config()))[1].config, {"messages": []})
        saver.prune(["t"])
        assert len(list(saver.list(config()))) == 1
        assert texts(graph.get_state(config())) == before
        assert saver.get_tuple(doomed) is None
        graph.invoke({"messages": [("user", "goes on")]}, config())
        assert texts(graph.get_state(config()))[-2] == "goes on"
    assert b"SECRET" not in (tmp_path / "a.db").read_bytes()


def test_deleted_run_leaves_other_runs_readable(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        saver = PerdureSaver(store)
        graph = graph_with(saver)
        for run in ("r1", "r2", "r3"):
            said = {"messages": [("user", f"of {run} {'x' * 400}")]}
            graph.invoke(said, {**config(), "metadata": {"run_id": run}})
        whole = texts(graph.get_state(config()))
        saver.delete_for_runs(["r2"])
        left = {found.metadata.get("run_id") for found in saver.list(config())}
        assert left == {"r1", "r3"}
        assert texts(graph.get_state(config())) == whole


@pytest.mark.all_only
def test_copy_is_complete_after_its_origin_is_deleted(store_address: str) -> None:
    with perdure.blocking.open(store_address) as store:
        saver = PerdureSaver(store)
        graph = graph_with(saver)
        graph.invoke({"messages": [("user", "one")]}, config("a"))
        saver.copy_thread("a", "b")
        graph.invoke({"messages": [("user", "two")]}, config("a"))
        saver.prune(["a"])
        assert texts(graph.get_state(config("b"))) == ["one", " answer 1"]
        saver.delete_thread("a")
        graph.invoke({"messages": [("user", "three")]}, config("b"))
        assert texts(graph.get_state(config("b")))[::2] == ["one", "three"]
        graph.invoke({"messages": [("user", "again")]}, config("a"))
        assert texts(graph.get_state(config("a"))) == ["again", " answer 1"]
        saver.prune(["b"])
        assert len(list(saver.list(config("b")))) == 1
        assert texts(graph.get_state(config("b")))[::2] == ["one", "three"]


async def test_thread_copy_succeeds_if_the_target_thread_is_created_meanwhile(
    store_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = perdure.Store.open

    async def create_late(store: perdure.Store, id: str) -> perdure.Session:
        try:
            return await opened(store, id)
        except SessionNotFound:
            if id == "lg:b":
                monkeypatch.setattr(perdure.Store, "open", opened)
                await PerdureSaver(store).aput(config("b"), empty_checkpoint(), {}, {})
            raise

    async with perdure.open(store_address) as store:
        saver = PerdureSaver(store)
        await graph_with(saver).ainvoke({"messages": [("user", "one")]}, config("a"))
        monkeypatch.setattr(perdure.Store, "open", create_late)
        await saver.acopy_thread("a", "b")
        assert len([each async for each in saver.alist(config("b"))]) == 4


@POSTGRES_LATER
def test_checkpoint_deleted_from_the_original_is_listed_only_in_the_copy(
    store_address: str,
) -> None:
    with perdure.blocking.open(store_address) as store:
        graph_with(PerdureSaver(store)).invoke({"messages": [("user", "one")]}, config("a"))
        PerdureSaver(store).copy_thread("a", "b")
        graph_with(PerdureSaver(store)).invoke({"messages": [("user", "two")]}, config("a"))
        PerdureSaver(store).prune(["a"])
        PerdureSaver(store).copy_thread("a", "c")
        graph_with(PerdureSaver(store)).invoke({"messages": [("user", "three")]}, config("c"))
        for thread, count, newest in (("a", 1, " answer 3"), ("b", 3, " answer 1"), ("c", 4, "")):
            saver = PerdureSaver(store)
            assert len(list(saver.list(config(thread)))) == count
            assert texts(graph_with(saver).get_state(config(thread)))[-1].startswith(newest)


@POSTGRES_LATER
def test_invalid_notes_of_other_writers_are_reported_and_ignored(
    store_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with perdure.blocking.open(store_address) as store:
        graph = graph_with(PerdureSaver(store))
        graph.invoke({"messages": [("user", "one")]}, config("a"))
        PerdureSaver(store).copy_thread("a", "b")
        strange: list[dict[str, object]] = [
            {"n": 7},
            {"ns": 7, "checkpoint": 7},
            {"ns": "", "id": 7},
        ]
        for thread in ("a", "b"):
            session = store.open(f"lg:{thread}")
            for data in strange:
                for kind in ("writes", "deleted", "newest"):
                    session.append(perdure.Note(f"langgraph.{kind}", data))
                session.append(perdure.Custom("langgraph.checkpoint", data))
        for thread in ("a", "b"):
            saver = PerdureSaver(store)
            assert texts(graph_with(saver).get_state(config(thread))) == ["one", " answer 1"]
            assert len(list(saver.list(config(thread)))) == 3
            graph_with(saver).invoke({"messages": [("user", "two")]}, config(thread))
            saver.prune([thread])
            assert len(list(saver.list(config(thread)))) == 1
            saver.copy_thread(thread, f"{thread}-copy")
            assert len(list(saver.list(config(f"{thread}-copy")))) == 1
            copied = graph_with(saver).get_state(config(f"{thread}-copy"))
            assert texts(copied)[:3] == ["one", " answer 1", "two"]
    for what in ("note lg:a/", "note lg:b/", "entry lg:a/", "entry lg:b/"):
        assert f"{what}" in caplog.text
    assert "is not counted: this adapter did not write it" in caplog.text


@pytest.mark.parametrize(
    "store_address", ["sqlite", pytest.param("postgres", marks=pytest.mark.all_only)], indirect=True
)
def test_two_workers_on_one_thread_lose_no_checkpoint(store_address: str) -> None:
    turns, names = 8, ("left", "right")
    done = run_forked(run_together, store_address, "t", turns, names)
    assert (done.code, done.err) == (0, "")
    with perdure.blocking.open(store_address) as store:
        saver = PerdureSaver(store)
        found = list(saver.list(config()))
        assert len(found) == 2 * turns * 3
        said = {text for each in found for text in _said(each)}
        for name in names:
            assert {f"{name} question {turn}" for turn in range(turns)} <= said
        newest = saver.get_tuple(config())
        assert newest is not None
        assert newest.checkpoint["id"] == max(each.checkpoint["id"] for each in found)
        assert store.verify().is_ok


def _said(found: Any) -> list[str]:
    return [each.content for each in found.checkpoint["channel_values"].get("messages", [])]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", with_larger(1, 25, *FOR_LONG), ids=["sample", "many"])
def test_kill_of_a_graph_run_loses_no_finished_turn(tmp_path: Path, kills: int) -> None:
    """LangGraph's own saver and ours are killed in the same graph, at the same moments."""
    rng = random.Random(20)
    addresses = {"perdure": f"sqlite:///{tmp_path / 'a.db'}", "sqlite": str(tmp_path / "b.db")}
    moments = [rng.random() * 0.6 for _ in range(rounds(kills))]
    done = run_forked(run_and_kill, addresses, moments)
    returned = list(map(int, done.out.split()))
    assert len(returned) == len(moments) * len(addresses), done.err
    assert kills == 1 or sum(returned) > 0
    for place, (kind, address) in enumerate(addresses.items()):
        with saver_at(kind, address) as saver:
            graph = graph_with(saver)
            for kill, turns in enumerate(returned[place :: len(addresses)]):
                thread = config(f"k{kill}")
                kept = texts(graph.get_state(thread))
                assert [f" question {turn}" for turn in range(turns)] == kept[::2][:turns]
                if graph.get_state(thread).next:
                    graph.invoke(None, thread)  # finishes the turn that the kill interrupted
                graph.invoke({"messages": [("user", "goes on")]}, thread)
                assert texts(graph.get_state(thread))[-2] == "goes on"
    with perdure.blocking.open(addresses["perdure"]) as store:
        assert store.verify().is_ok
    with sqlite3.connect(addresses["sqlite"]) as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
