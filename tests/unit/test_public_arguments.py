"""Every public call rejects an argument of a wrong type before it does anything else.

The tests inspect the public surface, so they cover new functions, methods and values.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, get_type_hints

import msgspec
import pytest

import perdure
from perdure import (
    Agent,
    Budget,
    Chat,
    CompactionSettings,
    Fallback,
    Flow,
    Flows,
    Follower,
    Hooks,
    InFlightMessage,
    InlineMedia,
    InputLimits,
    Limits,
    McpServer,
    Memory,
    MemoryConfig,
    Message,
    ModelExtractor,
    Permissions,
    Price,
    Recurring,
    Runtime,
    Schedule,
    Selection,
    Session,
    Store,
    ToolOutput,
    Workspace,
    blocking,
)
from perdure.errors import WrongArgument
from perdure.session.argument_checks import kind_of
from perdure.session.ids import StreamId
from perdure.testing import ScriptedModel
from tests.fakes.chats import MODEL, Stage
from tests.fakes.samples import case


class Nonsense:
    """A type that no parameter accepts."""


NONSENSE: Any = Nonsense()

PUBLIC: dict[ModuleType, list[str]] = {module: module.__all__ for module in (perdure, blocking)}
HANDLES = (
    *(Store, Memory, Schedule, ModelExtractor, Session, Chat, Runtime, Flows, Flow, Hooks),
    Follower,
)
BLOCKING = (
    *(blocking.Store, blocking.Memory, blocking.Schedule, blocking.Session, blocking.Chat),
    blocking.Runtime,
)

MADE: dict[type[msgspec.Struct], Mapping[str, Any]] = {
    # values that programs create and perdure stores -> valid arguments
    Agent: {"id": "a"},
    Budget: {},
    CompactionSettings: {},
    MemoryConfig: {},
    Fallback: {"model": MODEL},
    InputLimits: {},
    Limits: {},
    McpServer: {"name": "a", "command": "true"},
    Permissions: {},
    Recurring: {"cron": "* * * * *", "message": "a"},
    Price: {"input": 1, "output": 1},
    Selection: {"file": "a", "start_line": 1, "end_line": 2},
    ToolOutput: {"text": "a"},
    Workspace: {},
}
PARTS: dict[type[msgspec.Struct], Mapping[str, Any]] = {
    # parts of messages, checked when they are stored -> valid arguments
    perdure.MediaPart: {
        "mime_type": "image/png",
        "handle": f"media://sha256-{'0' * 64}",
        "byte_length": 1,
    },
    perdure.TextPart: {"text": "a"},
    perdure.ThinkingPart: {"text": "a"},
    perdure.ToolCallPart: {"id": "c", "name": "a", "args": {}},
    perdure.ToolResultPart: {"call_id": "c", "text": "a"},
}
ITEMS: dict[type[msgspec.Struct], Mapping[str, Any]] = {
    # values that are appended -> valid arguments
    perdure.BranchSummary: {"summary": "a"},
    perdure.Compaction: {"summary": "a"},
    perdure.Custom: {"custom_type": "a"},
    perdure.CustomMessage: {"custom_type": "a", "parts": ()},
    Message: {"role": "user", "parts": ()},
    perdure.ModelChange: {"model": MODEL},
    perdure.Note: {"note_type": "a"},
    perdure.ThinkingChange: {"level": "off"},
}
GIVEN_BACK = {
    # values that perdure makes and programs only read; those of flows are read from workflows,
    # bytes in flight are made by `media`, calls and tools by `tool`
    *("Context", "Entry", "Event", "Hit", "LiveEvent", "OpenQuestion", "Reply", "SessionInfo"),
    *("AppendOptions", "Appended", "CommittedSessions"),
    *("Snapshot", "SessionUsage", "TreeNode", "Usage", "FlowWait", "Block"),
    *("ActivityTotal", "Episode", "Fact", "FileEdit", "MemoryHit", "ToolCallRecord", "UsageTotal"),
    *("FeedbackContext", "FlowEdge", "FlowNode", "FlowRun", "FlowState", "Graph"),
    *("InFlightMessage", "InlineMedia", "ToolCall", "ToolSpec"),
}
HANDED_OUT = {
    # handles that perdure creates, whose methods have no arguments
    *("Recording", "Scheduler", "Turn", "Watch"),
}
NOT_ASKED = {
    # functions that do not check their arguments -> the reason
    "Hooks.at": "asked by the engine, with points of its own",
    "Hooks.has": "likewise",
    "Hooks.tell": "likewise",
    "Hooks.ask": "likewise",
}


def parameters_in(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters whose types are checked."""
    hints = get_type_hints(function)
    found = inspect.signature(function).parameters.values()
    return [each for each in found if each.name in hints and kind_of(hints[each.name]).fits]


def methods_of(known: type) -> Iterator[tuple[str, str]]:
    """Yield the name of each public method, with the name of each parameter."""
    for name, value in inspect.getmembers(known, inspect.isfunction):
        if not name.startswith("_") and f"{known.__name__}.{name}" not in NOT_ASKED:
            for parameter in parameters_in(value):
                yield name, parameter.name


def outcome(function: Callable[..., Any], name: str, others: object = None) -> object:
    """Call `function` with nonsense as its argument `name`; return the result.

    The other required arguments get `others`. If `others` is None, the other required arguments are
    missing, but the wrong type must be reported first.
    """
    args: list[object] = []
    kwargs: dict[str, object] = {}
    for each in inspect.signature(function).parameters.values():
        if each.name != name and (
            each.default is not each.empty or each.kind is each.VAR_POSITIONAL
        ):
            continue
        value = NONSENSE if each.name == name else others
        if value is None:
            continue
        is_placed = each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL)
        if is_placed or (others is not None and each.kind is not each.KEYWORD_ONLY and not kwargs):
            args.append(value)
        else:
            kwargs[each.name] = value
    return function(*args, **kwargs)


async def awaited(function: Callable[..., Any], name: str) -> None:
    """Call `outcome`, and await the result if it is awaitable."""
    made = outcome(function, name, "a" if function in LOOK_THEMSELVES else None)
    if inspect.isawaitable(made):
        await made


def stepped(function: Callable[..., Any], name: str) -> None:
    """Call `outcome`, and request the first item if the result is a generator."""
    made = outcome(function, name, NONSENSE)
    if inspect.isgenerator(made):
        next(made)


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, including those of ``perdure.blocking``."""
    for module, names in PUBLIC.items():
        for name in names:
            value = getattr(module, name)
            if inspect.isfunction(value) and name not in NOT_ASKED:
                yield f"{module.__name__}.{name}", value


LOOK_THEMSELVES = (perdure.tool_call, perdure.tool_result, perdure.user)
"""Functions that have their own error texts for wrong parts of a message."""

FUNCTIONS = [
    (function, parameter.name)
    for _name, function in public_functions()
    for parameter in parameters_in(function)
]
METHODS = [(known, *each) for known in HANDLES for each in methods_of(known)]
CALLS_WITHOUT_ASYNC = [(known, *each) for known in BLOCKING for each in methods_of(known)]
FIELDS = [
    (known, sample, field.name)
    for table in (MADE, PARTS, ITEMS)
    for known, sample in table.items()
    for field in msgspec.structs.fields(known)
    if kind_of(field.type).fits is not None
]


@pytest.fixture
async def handles() -> AsyncIterator[dict[type, Any]]:
    """Return one handle of each type."""
    stage = Stage()
    async with stage.runtime(Agent("helper", model=MODEL)) as runtime:
        chat = await runtime.start("helper")
        flows = Flows(runtime)
        of_flows = (flows, flows.look(StreamId("f")))
        memory = stage.store.memory
        extractor = ModelExtractor(ScriptedModel([]), MODEL)
        found: tuple[Any, ...] = (
            stage.store,
            memory,
            stage.store.schedule,
            extractor,
            chat.session,
            chat,
            runtime,
            *of_flows,
        )
        yield {type(each): each for each in (*found, Hooks(), Follower())}
        await flows.close()


@pytest.fixture
def handles_without_async() -> Iterator[dict[type, Any]]:
    """Return one handle of each type of ``perdure.blocking``."""
    with (
        blocking.open("memory:") as store,
        blocking.Runtime(store, [Agent("helper", model="scripted:echo")]) as runtime,
    ):
        chat = runtime.start("helper")
        found: tuple[Any, ...] = (
            store,
            store.memory,
            store.schedule,
            store.create(),
            chat,
            runtime,
        )
        yield {type(each): each for each in found}


async def test_function_called_with_a_wrong_type_raises_wrong_argument() -> None:
    for function, name in FUNCTIONS:
        with case((function, name)), pytest.raises(WrongArgument, match=r"not (of )?Nonsense$"):
            await awaited(function, name)


async def test_method_called_with_a_wrong_type_raises_wrong_argument(
    handles: dict[type, Any],
) -> None:
    for known, method, name in METHODS:
        with case((known, method, name)), pytest.raises(WrongArgument, match="Nonsense"):
            await awaited(getattr(handles[known], method), name)


def test_blocking_method_called_with_a_wrong_type_raises_wrong_argument(
    handles_without_async: dict[type, Any],
) -> None:
    for known, method, name in CALLS_WITHOUT_ASYNC:
        with case((known, method, name)), pytest.raises(WrongArgument, match="Nonsense"):
            stepped(getattr(handles_without_async[known], method), name)


async def test_runtime_created_with_a_wrong_type_raises_wrong_argument(
    handles: dict[type, Any],
) -> None:
    for name in [each.name for each in parameters_in(Runtime.__init__)]:
        with case(name):
            arguments = {"store": handles[Store], name: NONSENSE}
            with pytest.raises(WrongArgument, match=f"Runtime takes .* as {name}, not Nonsense"):
                Runtime(**arguments)


def test_blocking_runtime_rejects_store_that_is_not_blocking() -> None:
    wrong: tuple[Any, ...] = (None, NONSENSE, Stage().store)
    for store in wrong:
        with pytest.raises(WrongArgument, match=r"Runtime takes a handle of perdure\.blocking"):
            blocking.Runtime(store)


async def test_value_with_wrong_field_type_is_not_stored() -> None:
    for known, sample, name in FIELDS:
        with case((known, sample, name)):
            arguments = {**sample, name: NONSENSE}
            if known in MADE:
                with pytest.raises(WrongArgument, match=f"{known.__name__} takes .* as {name}"):
                    known(**arguments)
                return
            value: Any = known(**arguments)
            session = await Stage().store.create()
            item = Message("user", (value,)) if known in PARTS else value
            with pytest.raises(WrongArgument, match=f"{known.__name__} takes .* as {name}, not"):
                await session.append(item)
            assert session.head == -1


async def test_message_with_wrong_part_type_is_not_sent() -> None:
    chat = await Stage().chat()
    wrong: tuple[Any, ...] = (Message("user", (perdure.TextPart(NONSENSE),)), NONSENSE, ["hello"])
    for said in wrong:
        with pytest.raises(WrongArgument):
            chat.send(said)
    assert chat.status == "idle"


def test_every_public_type_is_covered_by_the_argument_tests() -> None:
    for name in PUBLIC[perdure]:
        value = getattr(perdure, name)
        if not isinstance(value, type) or issubclass(value, perdure.errors.PerdureError):
            continue
        if ".flows." in value.__module__:  # values read from workflows, and handles of the module
            continue
        is_asked = value in {*MADE, *PARTS, *ITEMS, *HANDLES}
        assert is_asked or name in GIVEN_BACK or name in HANDED_OUT, name
    assert {InFlightMessage.__name__, InlineMedia.__name__} <= GIVEN_BACK
