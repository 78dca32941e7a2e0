"""Several savers of one store: a prune or deletion by one saver loses no data of the others."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import (  # pyright: ignore[reportMissingTypeStubs] - it has none
    END,
    START,
    MessagesState,
    StateGraph,
)

import perdure
from perdure.adapters.langgraph import PerdureSaver
from perdure.adapters.langgraph.thread import Thread


def config(thread: str, **more: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def put(saver: PerdureSaver, thread: str, id: str, value: object, parent: str = "") -> None:
    """Store a checkpoint with one channel of messages."""
    checkpoint = empty_checkpoint()
    checkpoint["id"] = id
    checkpoint["channel_values"] = {"messages": value}
    checkpoint["channel_versions"] = {"messages": id}
    at = config(thread, checkpoint_id=parent) if parent else config(thread)
    saver.put(at, checkpoint, {"step": 0}, {"messages": id})


def messages_at(saver: PerdureSaver, thread: str, id: str = "") -> list[str] | None:
    """Return the texts of a checkpoint, by default the newest; None without a checkpoint."""
    found = saver.get_tuple(config(thread, checkpoint_id=id) if id else config(thread))
    if found is None:
        return None
    return [each.content for each in found.checkpoint["channel_values"]["messages"]]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


def graph_of(saver: Any) -> Any:
    def answer(_: MessagesState) -> Any:
        return {"messages": [("ai", "An answer.")]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("first", answer)
    builder.add_node("second", answer)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    builder.add_edge("second", END)
    return builder.compile(checkpointer=saver, interrupt_before=["second"])


def test_interrupted_checkpoint_is_unchanged_by_the_continued_run(address: str) -> None:
    with perdure.blocking.open(address) as store:
        for saver in (InMemorySaver(), PerdureSaver(store)):
            graph = graph_of(saver)
            graph.invoke({"messages": [("user", "Hello")]}, config("t"))
            paused = graph.get_state(config("t"))
            graph.invoke(None, config("t"))
            assert graph.get_state(paused.config).next == ("second",)


@pytest.mark.parametrize("parent", ["0005", "0029"])
def test_checkpoint_put_during_concurrent_prune_is_kept(
    address: str, parent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    with perdure.blocking.open(address) as one, perdure.blocking.open(address) as two:
        pruning, putting = PerdureSaver(one), PerdureSaver(two)
        for number in range(30):
            said.append(HumanMessage(f"message {number}"))
            before = f"{number - 1:04}" if number else ""
            put(pruning, "t", f"{number:04}", list(said), before)
        beside = [*said[: int(parent) + 1], HumanMessage("from beside")]
        inner, is_put = Thread._put_again, False  # pyright: ignore[reportPrivateUsage] - the moment

        async def beside_it(self: Thread, *arguments: Any) -> None:
            nonlocal is_put
            if not is_put:
                is_put = True
                await asyncio.to_thread(put, putting, "t", "0031", beside, parent)
            await inner(self, *arguments)

        monkeypatch.setattr(Thread, "_put_again", beside_it)
        pruning.prune(["t"])
        fresh = PerdureSaver(two)
        assert messages_at(fresh, "t", "0031") == [each.content for each in beside]
        assert messages_at(fresh, "t") == [each.content for each in beside]
        assert len(list(fresh.list(config("t")))) == 2
        fresh.prune(["t"])
        assert messages_at(PerdureSaver(one), "t") == [each.content for each in beside]


def test_recreated_thread_shows_no_data_of_the_deleted_thread(address: str) -> None:
    with perdure.blocking.open(address) as one, perdure.blocking.open(address) as two:
        reader, writer = PerdureSaver(one), PerdureSaver(two)
        put(reader, "t", "0001", [HumanMessage("old")])
        assert messages_at(reader, "t") == ["old"]
        writer.delete_thread("t")
        assert messages_at(reader, "t") is None
        put(writer, "t", "0001", [HumanMessage("new")])
        assert messages_at(reader, "t") == ["new"]
        assert messages_at(reader, "t", "0001") == ["new"]
        assert len(list(reader.list(config("t")))) == 1


def test_threads_of_two_persons_with_the_same_id_stay_separate(address: str) -> None:
    with perdure.blocking.open(address) as store:
        saver = PerdureSaver(store)
        put(saver, "victim", "0001", [HumanMessage("old")])
        saver.delete_thread("victim")
        put(saver, "victim", "0002", [HumanMessage("secret")])
        for thread in ("victim1", "1:victim", "lg1:victim", "h:victim"):
            assert messages_at(saver, thread) is None
            saver.delete_thread(thread)
        assert messages_at(saver, "victim") == ["secret"]


def test_session_that_is_not_a_thread_is_rejected(address: str) -> None:
    with perdure.blocking.open(address) as store:
        store.create(id="lg:notes")
        with pytest.raises(perdure.errors.WrongArgument, match="no thread of LangGraph"):
            PerdureSaver(store).get_tuple(config("notes"))


def test_prune_keeps_all_messages_including_one_that_a_person_added(address: str) -> None:
    said = [HumanMessage(f"message {number}") for number in range(4)]
    with perdure.blocking.open(address) as store:
        saver = PerdureSaver(store)
        for number in range(4):
            put(
                saver, "t", f"{number:04}", said[: number + 1], f"{number - 1:04}" if number else ""
            )
        before = [message.text for message in store.open("lg:t").messages()]
        store.open("lg:t").append(perdure.user("A remark of a person."))
        saver.prune(["t"])
        assert [message.text for message in store.open("lg:t").messages()] == before
        assert len(store.search("remark")) == 1


def test_writes_stored_by_another_saver_before_the_checkpoint_are_found(address: str) -> None:
    with perdure.blocking.open(address) as one, perdure.blocking.open(address) as two:
        ours, theirs = PerdureSaver(one), PerdureSaver(two)
        put(ours, "t", "0001", [HumanMessage("old")])
        theirs.put_writes(config("t", checkpoint_id="0002"), [("left", 1)], "task-1")
        put(ours, "t", "0002", [HumanMessage("new")], "0001")
        ours.put_writes(config("t", checkpoint_id="0002"), [("right", 2)], "task-2")
        for saver in (ours, theirs):
            found = saver.get_tuple(config("t"))
            assert found is not None
            assert found.pending_writes == [("task-1", "left", 1), ("task-2", "right", 2)]


def test_concurrent_first_writes_to_a_new_thread_are_all_kept(address: str) -> None:
    with perdure.blocking.open(address) as store:
        saver = PerdureSaver(store)
        with ThreadPoolExecutor(8) as pool:
            calls = [
                pool.submit(
                    saver.put_writes,
                    config("t", checkpoint_id="0001"),
                    [("channel", number)],
                    f"task-{number}",
                )
                for number in range(8)
            ]
        for call in calls:
            call.result()
        put(saver, "t", "0001", [HumanMessage("new")])
        for reader in (saver, PerdureSaver(store)):
            found = reader.get_tuple(config("t"))
            assert found is not None
            assert found.pending_writes is not None
            assert sorted(value for _, _, value in found.pending_writes) == list(range(8))
