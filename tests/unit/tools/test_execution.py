from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import SessionNotFound, ToolDenied, ToolError, UnknownTool
from perdure.secrets.vault import Taint, Vault
from perdure.session.media.inline import InlineMedia
from perdure.tools import execution
from perdure.tools.decorator import tool
from perdure.tools.execution import ToolRun, failed_run, run_tool, shorten_text
from perdure.tools.spec import ToolOutput
from tests.fakes.clock import ManualClock
from tests.fakes.tool_calls import tool_call_of

Body = Callable[[], Awaitable[object]]


async def run_of(body: Body, *, timeout_s: float = 60, max_output_bytes: int = 1000) -> ToolRun:
    async def act() -> object:
        return await body()

    spec = tool(timeout_s=timeout_s, max_output_bytes=max_output_bytes)(act)
    return await run_tool(spec, tool_call_of("act"), clock=ManualClock())


def raising(error: BaseException) -> Body:
    async def body() -> None:
        raise error

    return body


async def test_tool_result_without_error_gives_outcome_ok() -> None:
    async def body() -> str:
        return "fine"

    assert await run_of(body) == ToolRun(ToolOutput("fine"), "ok", duration_ms=0)


async def test_duration_is_measured_with_the_clock() -> None:
    clock = ManualClock()

    @tool
    async def act() -> None:
        clock.advance(1.5)
        clock.set_time_of_day(0)

    run = await run_tool(act, tool_call_of("act"), clock=clock)
    assert run.duration_ms == 1500


async def test_output_with_error_flag_is_an_error() -> None:
    output = ToolOutput("no such city", is_error=True)

    async def body() -> ToolOutput:
        return output

    run = await run_of(body)
    assert run == ToolRun(output, "error", "no such city", "tool_error", duration_ms=0)


@pytest.mark.parametrize(
    ("error", "outcome", "code", "text"),
    [
        (ToolError("act", "no luck"), "error", "tool_error", "act: no luck"),
        (ToolDenied("act", "not there"), "refused", "tool_denied", "act: not there"),
        (ValueError("bad date"), "error", "tool_error", "act: ValueError: bad date"),
        (KeyError("x"), "error", "tool_error", "act: KeyError: 'x'"),
        (RuntimeError(), "error", "tool_error", "act: RuntimeError"),
        (TimeoutError("its own"), "error", "tool_error", "act: TimeoutError: its own"),
        (
            ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [KeyError("b")])]),
            "error",
            "tool_error",
            "act: ValueError: a; KeyError: 'b'",
        ),
    ],
)
async def test_tool_error_is_reported_to_model(
    error: Exception, outcome: str, code: str, text: str
) -> None:
    run = await run_of(raising(error))
    assert (run.outcome, run.error_code, run.error) == (outcome, code, text)
    assert run.output == ToolOutput(text, is_error=True)


async def test_error_code_of_a_perdure_error_is_kept() -> None:
    run = await run_of(raising(SessionNotFound("s9")))
    assert (run.outcome, run.error_code) == ("error", "session_not_found")


async def test_error_without_text_is_shown_by_its_class_name() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise AttributeError("x")

    assert (await run_of(raising(Broken()))).error == "act: Broken"


async def test_call_with_wrong_arguments_returns_an_error_to_the_model() -> None:
    @tool
    async def act(n: int) -> None: ...

    run = await run_tool(act, tool_call_of("act", n="1"), clock=ManualClock())
    assert (run.outcome, run.error_code) == ("error", "invalid_arguments")
    assert run.output.text == "act: n: expected `int`, got `str` (its parameters: n)"


async def test_call_that_could_not_start_has_no_duration() -> None:
    run = failed_run("fly", UnknownTool("fly", ("walk",)))
    assert (run.outcome, run.error_code, run.duration_ms) == ("error", "unknown_tool", None)
    assert run.output == ToolOutput("fly: unknown tool; available: walk", is_error=True)


async def test_tool_is_cancelled_after_its_timeout() -> None:
    ended: list[str] = []

    async def body() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    run = await run_of(body, timeout_s=0.01)
    assert (run.outcome, run.error_code) == ("timeout", "tool_timeout")
    assert run.output == ToolOutput("act: no result within 0.01 s", is_error=True)
    assert ended == ["cancelled"]


async def test_tool_that_ignores_cancellation_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "STOP_GRACE_S", 0.01)
    go_on = asyncio.Event()
    ended = asyncio.Event()

    async def body() -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        raise ValueError("nobody is interested")

    run = await run_of(body, timeout_s=0.01)
    assert run.outcome == "timeout"
    go_on.set()
    await ended.wait()


async def test_cancelled_caller_stops_tool() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def body() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.ensure_future(run_of(body))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_tool_that_cancels_itself_does_not_cancel_its_caller() -> None:
    run = await run_of(raising(asyncio.CancelledError()))
    assert (run.outcome, run.error) == ("error", "act: it was cancelled from inside")


def test_keyboard_interrupt_during_a_tool_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_of(raising(KeyboardInterrupt())))


class Leaving:
    """A signal handler that ends the program."""

    def __call__(self, *_: object) -> None:
        raise SystemExit

    def end(self, *_: object) -> None:
        raise SystemExit


def leave(*_: object) -> None:
    raise SystemExit


HANDLERS: tuple[Callable[..., None], ...] = (
    leave,
    Leaving(),
    Leaving().end,
    partial(leave, "now"),
)


@pytest.mark.parametrize("handler", HANDLERS)
def test_signal_during_a_tool_call_exits_the_program(handler: Callable[..., None]) -> None:
    async def act() -> str:
        signal.raise_signal(signal.SIGTERM)
        return "acted"

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(SystemExit):
            asyncio.run(run_of(act))
    finally:
        signal.signal(signal.SIGTERM, before)


def test_system_exit_in_a_tool_is_reported_as_an_error_of_the_tool() -> None:
    async def act() -> str:
        argparse.ArgumentParser(prog="act").parse_args(["--x"])
        return "acted"

    run = asyncio.run(run_of(act))
    assert (run.outcome, run.error) == ("error", "act: it raised SystemExit: 2")


async def test_long_output_keeps_its_beginning_and_its_end() -> None:
    async def body() -> str:
        return "a" * 700 + "b" * 5000 + "c" * 300

    run = await run_of(body, max_output_bytes=200)
    head, note, tail = run.output.text.split("\n")
    assert set(head) == {"a"}
    assert set(tail) == {"c"}
    assert note == f"[... {6000 - len(head) - len(tail)} bytes left out ...]"
    assert 190 < len(run.output.text) <= 200
    assert 2.2 < len(head) / len(tail) < 2.5


async def test_long_error_is_shortened_for_the_log_and_for_the_model() -> None:
    run = await run_of(raising(ValueError("x" * 5000)), max_output_bytes=2000)
    assert run.error is not None
    assert len(run.error) <= 500
    assert 1900 < len(run.output.text) <= 2000


async def test_shortened_output_keeps_its_other_fields() -> None:
    picture = InlineMedia("image/png", b"\x89PNG")

    async def body() -> ToolOutput:
        return ToolOutput("x" * 5000, media=[picture], ends_session=True)

    run = await run_of(body, max_output_bytes=100)
    assert run.output.ends_session
    assert run.output.media == (picture,)
    assert len(run.output.text) <= 100


async def test_traceback_of_a_failed_tool_is_logged_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taint = Taint(Vault(environment={}))
    taint.took("LOGIN", "swordfish")

    @tool
    async def act() -> None:
        """Act."""
        raise KeyError("swordfish sk-ant-api03-" + "a" * 40)

    call = msgspec.structs.replace(tool_call_of("act"), secrets=taint)
    await run_tool(act, call, clock=ManualClock())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "the tool act failed\nTraceback" in record.getMessage()
    assert "KeyError: '[secret:LOGIN] [redacted]'" in record.getMessage()


async def test_cause_is_logged_if_a_tool_result_is_not_json(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> object:
        return object()

    await run_of(body)
    assert "the result of the tool act cannot be written as JSON\nTraceback" in caplog.text


async def test_error_raised_as_tool_error_is_logged_only_at_debug_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "perdure")
    await run_of(raising(ToolError("act", "no such city")))
    assert not [each for each in caplog.records if "failed" in each.message]
    caplog.set_level(logging.DEBUG, "perdure")
    await run_of(raising(ToolError("act", "no such city")))
    assert "the tool act failed\nTraceback" in caplog.text


async def test_lone_surrogate_in_a_tool_output_is_replaced() -> None:
    async def body() -> str:
        return "a\ud800b"

    assert (await run_of(body)).output.text == "a?b"


@given(st.text(max_size=300), st.integers(min_value=1, max_value=200))
def test_shortened_text_is_valid_and_fits(text: str, limit_bytes: int) -> None:
    short = shorten_text(text, limit_bytes)
    size_bytes = len(short.encode())
    if len(text.encode(errors="replace")) <= limit_bytes:
        assert short == text.encode(errors="replace").decode()
    elif limit_bytes > 50:
        assert size_bytes <= limit_bytes
    else:
        assert size_bytes <= limit_bytes + 50


async def test_secret_at_the_cut_of_a_long_result_is_scrubbed() -> None:
    taint = Taint(Vault(environment={}))
    taint.took("LOGIN", "swordfish")
    for length in range(20, 60, 4):

        @tool(max_output_bytes=100)
        async def act() -> str:
            """Act."""
            return "no " * (length // 3) + "swordfish" + " no" * 100  # noqa: B023 - called at once

        call = msgspec.structs.replace(tool_call_of("act"), secrets=taint)
        run = await run_tool(act, call, clock=ManualClock())
        assert run.whole is not None
        assert "swordfish" not in run.whole
        assert "swor" not in run.output.text
