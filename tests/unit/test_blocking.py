"""The library without async."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure import blocking
from perdure.client.agents.agent import Agent
from perdure.errors import ConfigError, EntryNotFound, StoreUnavailable
from perdure.session.messages import assistant, user


def test_session_works_without_async() -> None:
    with blocking.open("memory:") as store:
        session = store.create(id="s", title="Trip", lazy=True)
        hello = session.append(user("Hello"))
        assert session.is_draft
        session.append(assistant("Hi"), user("Where to?"))
        session.branch(hello)
        session.label(hello, "start")
        copy = session.fork(at=hello)
        assert [entry.seq for entry in session.entries(after=1)] == [2, 3, 4]
        assert [message.text for message in copy.messages()] == ["Hello"]
        assert store.open("s").title == "Trip"
        assert {info.id for info in store.recent()} == {"s", copy.id}
        with pytest.raises(EntryNotFound):
            session.branch("s/99")


def test_watch_of_the_blocking_interface_is_an_ordinary_iterator() -> None:
    with blocking.open("memory:") as store:
        session = store.create()
        watch = session.watch()
        session.append(user("a"))
        session.append(user("b"))
        seen: list[str] = []
        for event in watch:
            seen.append(event.type)
            if len(seen) == 2:
                break
        assert seen == ["agent:message", "agent:message"]
        assert watch.cursor.after == 1


def test_watch_in_another_thread_ends_when_store_is_closed() -> None:
    seen: list[str] = []
    begun = threading.Event()

    def watch() -> None:
        try:
            for event in session.watch(after=-1):
                seen.append(event.type)
                begun.set()
        except StoreUnavailable:
            seen.append("ended")

    with blocking.open("memory:") as store:
        session = store.create()
        session.append(user("a"))
        watcher = threading.Thread(target=watch)
        watcher.start()
        assert begun.wait(60)
    watcher.join(60)
    assert seen == ["agent:message", "ended"]


def test_many_threads_append_to_one_session() -> None:
    with blocking.open("memory:") as store:
        session = store.create()
        said = [user(str(n)) for n in range(100)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(session.append, said))
        assert [entry.seq for entry in session.entries()] == list(range(100))


def test_agent_answers_without_async() -> None:
    agent = Agent("helper", model="scripted:echo")
    with (
        blocking.open("memory:") as store,
        blocking.Runtime(store, agents=[agent]) as runtime,
    ):
        chat = runtime.start(agent, title="T")
        turn = chat.send("hello there")
        types = [event.type for event in turn]
        assert types[0] == "session:turn_started"
        assert types[-1] == "session:turn_completed"
        assert "hello there" in turn.result().text
        assert chat.session.title == "T"
        assert chat.turn is not None
        assert not chat.turn.is_running
        assert runtime.resume(chat.id).turn is None


def test_append_to_a_closed_store_raises_store_unavailable() -> None:
    store = blocking.open("memory:")
    session = store.create()
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        session.append(user("late"))


def test_store_that_fails_to_open_leaves_no_thread() -> None:
    before = {*threading.enumerate()}  # some of earlier tests may end meanwhile
    with pytest.raises(ConfigError):
        blocking.open("nonsense")
    assert {*threading.enumerate()} <= before
