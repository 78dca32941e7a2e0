"""Hooks run in order; a failing hook is skipped, or blocks if it is a guard."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest

from perdure.engine.hooks.points import (
    AfterModelCall,
    BeforeCompact,
    BeforeFork,
    BeforeModelCall,
    Block,
    HookName,
    HookPoint,
    SessionShutdown,
    ToolAnswered,
    ToolAsked,
)
from perdure.engine.hooks.registry import Hooks
from perdure.errors import WrongArgument
from perdure.models.protocol import ModelRequest, ToolDeclaration
from perdure.session.messages import assistant, tool_call, user
from perdure.tools.spec import ToolCall, ToolOutput
from tests.fakes.tool_calls import tool_call_of

CALL: ToolCall = tool_call_of("look")
ASKED = ToolAsked("s", CALL)
ANSWERED = ToolAnswered("s", CALL, ToolOutput("a"))


def failing(point: object) -> None:
    raise RuntimeError("ours")


async def test_hooks_run_in_order_and_see_earlier_changes() -> None:
    hooks = Hooks()

    async def louder(point: ToolAnswered) -> ToolOutput:
        return ToolOutput(point.output.text.upper())

    hooks.on("tool_result", louder)
    hooks.on("tool_result", lambda point: ToolOutput(point.output.text + "!"))
    point, answer = await hooks.ask(ANSWERED)
    assert (point.output.text, answer) == ("A!", None)


async def test_hook_that_blocks_a_call_skips_the_later_hooks() -> None:
    hooks = Hooks()
    asked: list[int] = []
    hooks.on("tool_call", lambda point: asked.append(1))
    hooks.on("tool_call", lambda point: Block("no"))
    hooks.on("tool_call", lambda point: asked.append(2))
    assert (await hooks.ask(ASKED))[1] == Block("no")
    assert asked == [1]


def takes_none() -> None: ...


async def takes_two(call: ToolCall, output: ToolOutput) -> None: ...


def yields(point: HookPoint) -> Iterator[None]:
    yield


def takes_rest(*points: HookPoint, is_told: bool = False) -> None: ...


@pytest.mark.parametrize(
    ("hook", "told"),
    [
        (takes_none, "takes () -> 'None', but it is called with one argument"),
        (takes_two, "takes (call: 'ToolCall', output: 'ToolOutput') -> 'None', but it is called "),
        (yields, "yields, but it has to return"),
    ],
)
def test_hook_of_wrong_signature_is_rejected_when_registered(hook: Any, told: str) -> None:
    with pytest.raises(WrongArgument) as caught:
        Hooks().on("tool_result", hook)
    assert str(caught.value).startswith(f"the hook of tool_result {told}")
    assert "use a function like `def f(point: ToolAnswered)`, plain or async" in str(caught.value)


def test_hook_whose_signature_accepts_one_argument_is_accepted() -> None:
    hooks, seen = Hooks(), list[HookPoint]()
    accepted: tuple[Any, ...] = (takes_rest, failing, seen.append, print, Block, Mock(spec=failing))
    for hook in accepted:
        hooks.on("tool_result", hook)
    assert len(hooks.at("tool_result")) == len(accepted)


async def test_failing_hook_is_skipped_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = Hooks()
    hooks.on("tool_result", failing)
    hooks.on("tool_result", lambda point: ToolOutput("b"))
    with caplog.at_level(logging.ERROR):
        point, _ = await hooks.ask(ANSWERED)
    assert point.output.text == "b"
    assert "a hook of tool_result failed" in caplog.text


async def test_failing_guard_blocks_the_call_and_hides_the_error_text() -> None:
    hooks = Hooks()
    hooks.on("tool_call", failing)
    _, answer = await hooks.ask(ASKED)
    assert answer == Block("a hook of tool_call failed (RuntimeError)")
    hooks = Hooks()
    hooks.on("session_before_fork", failing, is_guard=False)
    assert (await hooks.ask(BeforeFork("s", None)))[1] is None
    hooks.on("session_shutdown", failing, is_guard=True)
    assert isinstance((await hooks.ask(SessionShutdown("s")))[1], Block)


async def test_hook_result_of_a_wrong_type_counts_as_failure() -> None:
    hooks = Hooks()
    hooks.on("tool_result", lambda point: "text")
    assert (await hooks.ask(ANSWERED)) == (ANSWERED, None)
    hooks.on("tool_call", lambda point: True)
    assert isinstance((await hooks.ask(ASKED))[1], Block)


async def test_hook_can_be_removed_and_unknown_hook_name_is_rejected() -> None:
    hooks = Hooks()
    assert not hooks.has("tool_call")
    remove = hooks.on("tool_call", lambda point: Block("no"))
    assert hooks.has("tool_call")
    remove()
    remove()
    assert (await hooks.ask(ASKED)) == (ASKED, None)
    with pytest.raises(ValueError, match=r"Hooks\.on takes 'session_start' or .* as name, not 'x'"):
        hooks.on(cast("HookName", "x"), failing)


async def test_combined_hooks_call_the_base_hooks_first() -> None:
    of_store, of_agent = Hooks(), Hooks()
    both = Hooks(of_store, None, of_agent)
    of_agent.on("tool_result", lambda point: ToolOutput(point.output.text + "2"))
    remove = of_store.on("tool_result", lambda point: ToolOutput(point.output.text + "1"))
    both.on("tool_result", lambda point: ToolOutput(point.output.text + "3"))
    assert both.has("tool_result")
    assert not both.has("tool_call")
    assert (await both.ask(ANSWERED))[0].output.text == "a123"
    remove()
    assert (await both.ask(ANSWERED))[0].output.text == "a23"


def containers_in(value: Any) -> Iterator[dict[Any, Any] | list[Any]]:
    """Yield each dict and list in `value`, the innermost first."""
    inner: list[Any] = []
    if isinstance(value, msgspec.Struct):
        inner = [getattr(value, name) for name in value.__struct_fields__]
    elif isinstance(value, dict):
        inner = list(cast("dict[Any, Any]", value).values())
    elif isinstance(value, list | tuple):
        inner = list(cast("list[Any]", value))
    for each in inner:
        yield from containers_in(each)
    if isinstance(value, dict | list):
        yield cast("dict[Any, Any] | list[Any]", value)


def point_with_data(kind: type[HookPoint]) -> HookPoint:
    """Return a hook point of class `kind`, with dicts and lists in every possible field."""
    asked = assistant("look", tool_call("c", "look", {"at": ["home"]}))
    said = (user("hi", foreign={"text": ["hi"]}), asked)
    tools = (ToolDeclaration("look", "Look.", {"required": ["at"]}),)
    request = ModelRequest("m:m", said, tools=tools, output_schema={"enum": ["yes"]})
    call = tool_call_of("look", at=["home", {"room": 2}])
    points: tuple[HookPoint, ...] = (
        BeforeModelCall("s", request),
        AfterModelCall("s", request, asked),
        ToolAsked("s", call),
        ToolAnswered("s", call, ToolOutput("a")),
        BeforeCompact("s", "manual", said, None, 7),
    )
    return next(point for point in points if type(point) is kind)


@pytest.mark.parametrize(
    "kind", [BeforeModelCall, AfterModelCall, ToolAsked, ToolAnswered, BeforeCompact]
)
async def test_hook_cannot_modify_the_data_object_that_it_receives(kind: type[HookPoint]) -> None:
    hooks, seen = Hooks(), list[HookPoint]()

    def spoil(point: HookPoint) -> None:
        for each in containers_in(point):
            each.clear()

    hooks.on(kind.name, spoil)
    hooks.on(kind.name, seen.append)
    point = point_with_data(kind)
    before = repr(list(containers_in(point)))
    assert "at" in before
    after, answer = await hooks.ask(point)
    assert answer is None
    for each in (point, after, *seen):
        assert repr(list(containers_in(each))) == before
    assert len(seen) == 1


async def test_hook_gets_copy_of_deeply_nested_arguments() -> None:
    hooks, seen = Hooks(), list[ToolAsked]()
    hooks.on("tool_call", seen.append)
    inner: list[object] = ["here"]
    nested: object = inner
    for _ in range(5_000):
        nested = [nested]
    point = ToolAsked("s", tool_call_of("look", at=nested))
    _, answer = await hooks.ask(point)
    assert answer is None
    own: Any = seen[0].call.args["at"]
    for _ in range(5_000):
        (own,) = own
    assert own == inner
    assert own is not inner


async def test_hook_data_without_dicts_is_not_copied() -> None:
    hooks, seen = Hooks(), list[HookPoint]()
    hooks.on("session_before_fork", seen.append)
    point = BeforeFork("s", None)
    await hooks.ask(point)
    assert seen[0] is point
