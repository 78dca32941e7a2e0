"""A failure of telemetry does not affect any turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from perdure.client.agents import runtime_services
from perdure.engine.telemetry.isolation import Isolated
from perdure.engine.telemetry.spans import SpanObserver
from perdure.tools.decorator import tool
from tests.fakes.chats import Stage, calls, says
from tests.fakes.clock import ManualClock
from tests.fakes.telemetry import always


class Broken:
    """An object that raises an error at every call."""

    def __getattr__(self, name: str) -> Any:
        def broken(*_: object, **__: object) -> object:
            raise RuntimeError(name)

        return broken


class BrokenAtTheStart(SpanProcessor):
    on_start = Broken().on_start


class BrokenAtTheEnd(SpanProcessor):
    on_end = Broken().on_end


class BrokenExporter(SpanExporter):
    export = Broken().export


class BrokenSampler(Sampler):
    should_sample = Broken().should_sample

    def get_description(self) -> str:
        return "broken"


def processed(processor: SpanProcessor) -> TracerProvider:
    tracers = TracerProvider()
    tracers.add_span_processor(processor)
    return tracers


class BrokenMeters:
    """A provider whose instruments raise an error at every measurement."""

    def get_meter(self, *_: object, **__: object) -> Any:
        class Meter:
            def create_histogram(self, *_: object, **__: object) -> Any:
                return Broken()

            create_counter = create_up_down_counter = create_histogram

        return Meter()


MADE: dict[str, Callable[[], dict[str, Any]]] = {
    "exporter": lambda: {"tracers": processed(SimpleSpanProcessor(BrokenExporter()))},
    "start": lambda: {"tracers": processed(BrokenAtTheStart())},
    "end": lambda: {"tracers": processed(BrokenAtTheEnd())},
    "sampler": lambda: {"tracers": TracerProvider(sampler=BrokenSampler())},
    "instruments": lambda: {"meters": BrokenMeters()},
}


@tool(effect="read")
def look() -> str:
    return "seen"


async def turn_under(monkeypatch: pytest.MonkeyPatch, observer: Any) -> tuple[list[str], str]:
    """Return the kinds of all entries of a turn with `observer`, and its answer."""
    monkeypatch.setattr(runtime_services, "chosen_observer", always(observer))
    stage = Stage(says(calls("look")), says("all is well"))
    reply = await (await stage.chat([look])).send("look")
    return await stage.kinds(), reply.text


@pytest.mark.parametrize("what", MADE)
async def test_observer_failure_does_not_affect_turn(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    observer = Isolated(SpanObserver(ManualClock(), **MADE[what]()))
    watched = await turn_under(monkeypatch, observer)
    monkeypatch.undo()
    stage = Stage(says(calls("look")), says("all is well"))
    reply = await (await stage.chat([look])).send("look")
    assert watched == (await stage.kinds(), reply.text)


class Recording:
    """Records the exception at its exit, and raises an error on request."""

    def __init__(self, *, is_failing: bool) -> None:
        self.left: list[BaseException | None] = []
        self._is_failing = is_failing

    @contextmanager
    def _span(self) -> Any:
        try:
            yield self._told
        except BaseException as error:
            self.left.append(error)
            raise
        else:
            self.left.append(None)

    def _told(self, value: object) -> None:
        if self._is_failing:
            raise RuntimeError("told")

    def turn(self, *_: object, **__: object) -> AbstractContextManager[Any]:
        return self._span()

    def effect(self, *_: object, **__: object) -> AbstractContextManager[Any]:
        return self._span()


def leave(watched: Isolated, error: BaseException) -> None:
    """Raise `error` inside a `watched` effect."""
    nothing: Any = None
    with watched.effect(nothing, nothing) as came:
        came(nothing)
        raise error


@pytest.mark.parametrize("is_failing", [False, True])
def test_error_in_a_traced_block_is_raised_and_recorded(is_failing: bool) -> None:
    recording = Recording(is_failing=is_failing)
    nothing: Any = None
    watched = Isolated(recording)
    for error in (asyncio.CancelledError(), ValueError("mine")):
        with pytest.raises(type(error)):
            leave(watched, error)
        assert recording.left.pop() is error
    with watched.turn(nothing, nothing, nothing) as ended:
        ended(nothing)
    assert recording.left == [None]
