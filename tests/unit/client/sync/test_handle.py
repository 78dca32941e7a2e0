"""A handle without async: the calls that it passes on, and its results."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import perdure
from perdure import blocking
from perdure.errors import WrongArgument
from perdure.testing import ScriptedModel


@pytest.fixture
def store() -> Iterator[blocking.Store]:
    with blocking.open("memory:") as opened:
        yield opened


def test_blocking_handles_accept_and_return_blocking_handles(store: blocking.Store) -> None:
    session = store.create(id="s")
    other = session.fork()
    assert (type(session), type(other)) == (blocking.Session, blocking.Session)
    store.commit(writes=[(session, [perdure.user("one")], {}), (other, [perdure.user("two")], {})])
    assert [len(each.messages()) for each in (session, other)] == [1, 1]


def test_blocking_store_lacks_private_and_async_attributes(store: blocking.Store) -> None:
    for name in ("backend", "outside", "aclose", "_bus", "nonsense"):
        with pytest.raises(AttributeError, match=name):
            getattr(store, name)


def test_blocking_handle_rejects_an_object_of_another_type() -> None:
    with pytest.raises(WrongArgument, match=r"a handle of perdure\.blocking"):
        blocking.Runtime("memory:")  # pyright: ignore[reportArgumentType] - the mistake


def test_waiting_for_a_turn_result_times_out_and_the_turn_continues() -> None:
    going = threading.Event()

    @perdure.tool
    def wait() -> str:
        """Wait."""
        going.wait()
        return "done"

    call = perdure.assistant(perdure.tool_call("c1", "wait", {}))
    agent = perdure.Agent("slow", model="test:m", tools=[wait])
    with (
        blocking.open("memory:") as store,
        blocking.Runtime(store, [agent], models=ScriptedModel([call, "End."])) as runtime,
    ):
        turn = runtime.start("slow").send("Go.")
        with pytest.raises(TimeoutError, match=r"not ended within .* s; it continues"):
            turn.result(timeout_s=0.05)
        assert turn.is_running
        going.set()
        assert turn.result(timeout_s=60).text == "End."
        with pytest.raises(TypeError, match=r"^result\(\) got an unexpected keyword"):
            turn.result(seconds=1)  # type: ignore[call-arg] # the error names the method


@pytest.mark.parametrize("timeout_s", ["x", float("nan"), 10**400, True])
def test_timeout_of_the_wait_for_a_turn_result_must_be_a_number(
    store: blocking.Store, timeout_s: Any
) -> None:
    with blocking.Runtime(
        store, [perdure.Agent("a", model="test:m")], models=ScriptedModel(["End."])
    ) as runtime:
        turn = runtime.start("a").send("Go.")
        with pytest.raises(WrongArgument, match=r"Turn\.result takes a number or None"):
            turn.result(timeout_s=timeout_s)
        assert turn.result(timeout_s=60).text == "End."
