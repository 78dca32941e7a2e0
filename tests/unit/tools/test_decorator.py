from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from perdure.errors import InvalidArguments, ToolError, WrongArgument
from perdure.session.media.inline import media
from perdure.tools.decorator import FunctionTool, tool
from perdure.tools.permission_check import judge_call
from perdure.tools.permissions import Permissions
from perdure.tools.spec import DEFAULT_OUTPUT_BYTES, DEFAULT_TIMEOUT_S, ToolCall, ToolOutput
from tests.fakes.tool_calls import tool_call_of

PICTURE = media(b"\x89PNG\r\n\x1a\n", "image/png")


@dataclasses.dataclass
class Answer:
    number: int


@dataclasses.dataclass
class Holder:
    held: object


async def result_of(declared: FunctionTool[..., object], **args: object) -> str:
    return (await declared.run(tool_call_of(declared.name, **args))).text


def test_bare_decorator_makes_a_tool_with_cautious_defaults() -> None:
    @tool
    def send(to: str) -> None:
        """Send a mail.

        Args:
            to: Who gets it.
        """

    assert (send.name, send.description) == ("send", "Send a mail.")
    assert (send.effect, send.on_unknown) == ("external", "ask")
    assert (send.timeout_s, send.max_output_bytes) == (DEFAULT_TIMEOUT_S, DEFAULT_OUTPUT_BYTES)
    assert send.parameters["required"] == ["to"]


def test_options_of_decorator_are_used() -> None:
    @tool(
        effect="write",
        on_unknown="never",
        name="other-name",
        description="Other words.",
        timeout_s=1,
        max_output_bytes=10,
    )
    def f() -> None:
        """Do it."""

    assert (f.name, f.description) == ("other-name", "Other words.")
    assert (f.effect, f.on_unknown) == ("write", "never")
    assert (f.timeout_s, f.max_output_bytes) == (1, 10)


def test_tool_that_only_reads_is_retried_after_an_unknown_outcome() -> None:
    def f() -> None: ...

    assert tool(effect="read")(f).on_unknown == "retry"
    assert tool(effect="write")(f).on_unknown == "ask"
    assert tool(effect="external")(f).on_unknown == "ask"
    assert tool(effect="read", on_unknown="never")(f).on_unknown == "never"


async def test_decorated_function_can_still_be_called_directly() -> None:
    @tool
    def double(n: int) -> int:
        return 2 * n

    @tool
    async def half(n: int) -> int:
        return n // 2

    assert double(4) == 8
    assert await half(4) == 2
    assert double.function(1) == 2


@pytest.mark.parametrize("name", ["", "1st", "with space", "ünder", "x" * 65, "a.b"])
def test_name_that_a_provider_rejects_is_rejected(name: str) -> None:
    def f() -> None: ...

    f.__name__ = name
    with pytest.raises(ValueError, match="cannot be a tool's name"):
        tool(f)


def test_generators_and_non_functions_are_rejected() -> None:
    def counts() -> Iterator[int]:
        yield 1

    async def tells() -> AsyncIterator[int]:
        yield 1

    for function in (counts, tells):
        with pytest.raises(WrongArgument, match=f"{function.__name__}.* it yields"):
            tool(function)
    for nothing in (None, 5):
        declares: Any = tool(effect="read")
        with pytest.raises(WrongArgument, match="a tool is made of a function"):
            declares(nothing)


async def test_object_with_async_call_method_is_awaited() -> None:
    class Looks:
        async def __call__(self) -> str:
            return "seen"

    looks: Any = tool(name="look")(Looks())
    assert await looks.run(tool_call_of("look")) == ToolOutput("seen")


async def test_unencodable_result_is_not_reported_as_tool_error() -> None:
    @tool
    def names() -> str:
        return "caf\udce9"

    assert (await names.run(tool_call_of("names"))).text == "caf\udce9"


def test_tool_limits_of_zero_or_less_are_rejected() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        tool(timeout_s=0)
    with pytest.raises(ValueError, match="greater than 0"):
        tool(max_output_bytes=-1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "done"),
        (3, "3"),
        (Answer(3), '{"number":3}'),
        ([1, {"a": "ü"}], '[1,{"a":"ü"}]'),
    ],
)
async def test_result_of_a_tool_function_becomes_text(value: object, text: str) -> None:
    @tool
    async def f() -> object:
        return value

    assert await result_of(f) == text


@pytest.mark.parametrize(
    ("value", "text"), [(PICTURE, "image/png"), ([PICTURE], "image/png"), (["a", PICTURE], "a")]
)
async def test_returned_media_are_sent_as_media(value: object, text: str) -> None:
    @tool(effect="read")
    async def chart() -> object:
        """Draw a chart."""
        return value

    output = await chart.run(tool_call_of("chart"))
    assert (output.text, output.media) == (text, (PICTURE,))


@pytest.mark.parametrize(
    "value",
    [
        b"abc",
        ["a", b"abc"],
        [PICTURE, {"a": memoryview(b"abc")}],
        {"a": [bytearray(b"abc")]},
        Holder(b"abc"),
        {"a": PICTURE},
        [[PICTURE]],
        Holder(PICTURE),
    ],
)
async def test_returned_bytes_are_reported_with_the_remedy(value: object) -> None:
    @tool(effect="read")
    async def chart() -> object:
        """Draw a chart."""
        return value

    with pytest.raises(ToolError, match=r"it returned bytes: return perdure\.media"):
        await chart.run(tool_call_of("chart"))


async def test_tool_output_is_returned_unchanged() -> None:
    output = ToolOutput("bye", is_error=True, ends_session=True)

    @tool
    async def f() -> ToolOutput:
        return output

    assert await f.run(tool_call_of("f")) is output


async def test_result_that_is_not_json_is_reported_as_tool_error() -> None:
    @tool
    async def f() -> object:
        return threading.Lock()

    with pytest.raises(ToolError, match="cannot be written as JSON"):
        await result_of(f)


async def test_arguments_are_checked_before_the_function_runs() -> None:
    ran: list[int] = []

    @tool
    async def f(n: int) -> None:
        ran.append(n)

    with pytest.raises(InvalidArguments):
        await result_of(f, n="1")
    assert not ran
    await result_of(f, n=1)
    assert ran == [1]


async def test_missing_argument_gets_the_default_of_the_function() -> None:
    default = [1]

    @tool
    async def f(n: list[int] = default) -> bool:
        return n is default

    assert await result_of(f) == "true"


async def test_tool_call_is_passed_to_the_parameter_named_call() -> None:
    @tool
    async def f(to: str, *, call: ToolCall) -> str:
        return f"{to} {call.idempotency_key} {call.attempt}"

    assert await result_of(f, to="you") == "you key-1 1"


async def test_synchronous_function_does_not_block_the_event_loop() -> None:
    running, go_on = threading.Event(), threading.Event()

    @tool
    def f() -> str:
        running.set()
        go_on.wait(timeout=60)
        return threading.current_thread().name

    task = asyncio.ensure_future(result_of(f))
    assert await asyncio.to_thread(running.wait, 60)
    assert not task.done()
    go_on.set()
    assert await task != threading.current_thread().name


async def test_stop_iteration_raised_by_a_synchronous_tool_is_an_error() -> None:
    @tool
    def f() -> None:
        raise StopIteration

    with pytest.raises(ToolError, match="StopIteration"):
        await result_of(f)


def test_approval_required_by_a_tool_applies_even_in_auto_mode() -> None:
    @tool(needs_approval=True)
    def book(hotel: str) -> str:
        return hotel

    call = {"hotel": "Aurora"}
    for mode in ("ask", "accept-edits", "auto"):
        ruling = judge_call(book, call, Permissions(approval=mode))
        assert (ruling.decision, ruling.grant) == ("ask", None)
        assert '"hotel":"Aurora"' in ruling.text
    assert judge_call(book, call, Permissions(approval="plan")).decision == "refuse"
    assert judge_call(book, {}, Permissions()).error_code == "invalid_arguments"


def test_needs_approval_function_decides_by_arguments() -> None:
    def is_large(amount: int) -> bool:
        return amount > 100 / amount

    @tool(needs_approval=is_large)
    def pay(amount: int) -> str:
        return str(amount)

    decisions = {n: judge_call(pay, {"amount": n}, Permissions()).decision for n in (1, 0, 50)}
    assert decisions == {1: "run", 0: "ask", 50: "ask"}  # at 0 the function raises


def test_default_arguments_are_passed_to_the_needs_approval_function() -> None:
    def is_long(hotel: str, nights: int) -> bool:
        return nights > 2

    @tool(needs_approval=is_long)
    def book(hotel: str, nights: int = 1) -> str:
        return hotel

    assert judge_call(book, {"hotel": "Aurora"}, Permissions()).decision == "run"
    assert judge_call(book, {"hotel": "Aurora", "nights": 3}, Permissions()).decision == "ask"


def test_approval_is_required_if_the_needs_approval_function_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def is_large(amount: int) -> bool:
        return amount > 100 / amount

    @tool(needs_approval=is_large)
    def pay(amount: int) -> str:
        return str(amount)

    assert judge_call(pay, {"amount": 0}, Permissions()).decision == "ask"
    assert "needs_approval of the tool pay failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("decided", [None, "", 0, 1, "no", []])
def test_needs_approval_function_without_bool_result_requires_approval(
    decided: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def pay(amount: int) -> str:
        return str(amount)

    def decides(amount: int) -> Any:
        return decided

    def decides_of_all(args: Mapping[str, object]) -> Any:
        return decided

    paying = tool(needs_approval=decides)(pay)
    assert judge_call(paying, {"amount": 1}, Permissions()).decision == "ask"
    assert "needs_approval of the tool pay failed" in caplog.text
    assert f"it returned a {type(decided).__name__} instead of a bool" in caplog.text
    own = msgspec.structs.replace(paying, needs_approval=decides_of_all)
    assert judge_call(own, {"amount": 1}, Permissions()).decision == "ask"


def test_invalid_needs_approval_function_is_rejected() -> None:
    async def later(amount: int) -> bool:
        return amount > 1

    class Judge:
        async def __call__(self, amount: int) -> bool:
            return amount > 1

    def pay(amount: int) -> str:
        return str(amount)

    asynchronous: list[Any] = [later, Judge()]
    for condition in asynchronous:
        with pytest.raises(WrongArgument, match="needs_approval of the tool pay is async"):
            tool(needs_approval=condition)(pay)

    def of_all(args: object) -> bool:
        return args is None

    def of_none() -> bool:
        return True

    def of_more(amount: int, more: int) -> bool:
        return amount > more

    wrong: list[Callable[..., bool]] = [of_all, of_none, of_more]
    for condition in wrong:
        with pytest.raises(WrongArgument, match="called with the arguments of the tool: amount"):
            tool(needs_approval=condition)(pay)


def test_type_with_unknown_parameters_cannot_be_a_tool() -> None:
    with pytest.raises(WrongArgument, match="int cannot be a tool: Python does not know its param"):
        tool(int)


def test_tool_without_a_description_logs_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    def unexplained(city: str) -> str:
        return city

    assert tool(unexplained).description == ""
    assert caplog.text.count("the tool unexplained has no description") == 1
    caplog.clear()
    tool(description="The weather of a city.")(unexplained)
    tool(description="")(unexplained)
    assert not caplog.records
