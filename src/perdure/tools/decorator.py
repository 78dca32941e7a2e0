"""The `tool` decorator: makes a tool from a function."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from perdure.errors import ToolError, WrongArgument
from perdure.secrets.mask import log_failure
from perdure.session.argument_checks import takes_declared
from perdure.session.ledger import ToolEffect, UnknownPolicy
from perdure.session.media.inline import InlineMedia
from perdure.session.messages import MediaPart
from perdure.tools.docstring import parse_docstring
from perdure.tools.permissions import Permissions
from perdure.tools.schema import (
    CALL,
    Parameters,
    arguments_of,
    fields_or_text,
    json_of,
    parameters_of,
)
from perdure.tools.spec import (
    DEFAULT_OUTPUT_BYTES,
    DEFAULT_TIMEOUT_S,
    NeedsApproval,
    Run,
    Subject,
    ToolCall,
    ToolOutput,
    ToolSpec,
)
from perdure.tools.threads import in_tool_thread

_log = logging.getLogger(__name__)

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

POLICY_BY_EFFECT: dict[ToolEffect, UnknownPolicy] = {
    "read": "retry",
    "write": "ask",
    "external": "ask",
}
"""Maps the effect of a tool to the default policy for calls with an unknown outcome."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # what all providers accept


class FunctionTool(ToolSpec, Generic[P, R_co], frozen=True, kw_only=True):
    """A tool made from a function. A direct call runs `function` without checks, for unit tests."""

    function: Callable[P, R_co]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether `function` is ``async``; see `ToolSpec`."""
        return inspect.iscoroutinefunction(self.function)


class Declares(Protocol):
    """The type of the decorator that `tool(...)` with options returns."""

    def __call__(self, function: Callable[P, R_co], /) -> FunctionTool[P, R_co]: ...


@overload
def tool(function: Callable[P, R_co], /) -> FunctionTool[P, R_co]: ...


@overload
def tool(
    *,
    effect: ToolEffect = "external",
    on_unknown: UnknownPolicy | None = None,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    needs_approval: bool | Callable[..., bool] = False,
) -> Declares: ...


@takes_declared
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: ToolEffect = "external",
    on_unknown: UnknownPolicy | None = None,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    needs_approval: bool | Callable[..., bool] = False,
) -> FunctionTool[..., Any] | Declares:
    """Make a tool from a function: ``@tool``, or with options ``@tool(effect="read")``.

    The schema comes from the signature. The descriptions of tool and parameters (``Args:``) come
    from the docstring. A parameter ``call: ToolCall`` receives the call and is hidden from the
    model. A function that is not ``async`` runs in a thread, which a cancel does not stop. The
    model gets returned text, media and `ToolOutput` unchanged, None as "done", and other values as
    JSON. If `needs_approval` is True, a person approves each call, in every mode, and sees its
    arguments. `needs_approval` can be a function that gets the tool's arguments, including
    defaults, and returns whether a call needs approval; if it raises, the call needs approval.
    Units: `timeout_s` is in seconds, `max_output_bytes` in bytes of UTF-8.
    Raises: TypeError for a signature without a schema. Raises WrongArgument for a generator, a
    non-function, an invalid name or limit, or a `needs_approval` function with wrong parameters.
    """

    def make_tool(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        _require_function(function)
        parameters = parameters_of(function)
        chosen = _checked_name(name or getattr(function, "__name__", ""))
        return FunctionTool(
            name=chosen,
            description=_description(chosen, description, function),
            parameters=parameters.schema,
            arguments=partial(arguments_of, chosen, parameters),
            run=_run_of(chosen, function, parameters),
            effect=effect,
            on_unknown=on_unknown or POLICY_BY_EFFECT[effect],
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            function=function,
            action="process" if needs_approval else None,
            is_gated=bool(needs_approval),
            examine=_shown_call if needs_approval else None,
            needs_approval=_condition(chosen, needs_approval, function),
        )

    if timeout_s <= 0 or max_output_bytes <= 0:
        raise WrongArgument("timeout_s and max_output_bytes must be greater than 0")
    return make_tool if function is None else make_tool(function)


def _description(name: str, given: str | None, function: Callable[..., Any]) -> str:
    """Return `given`, or the docstring's summary; warn if the model gets only the tool's name."""
    found = given or parse_docstring(function).summary
    if not found and given is None:
        _log.warning(
            "the tool %s has no description, so the model sees only its name: give it a docstring, "
            "or description=...",
            name,
        )
    return found


def _shown_call(args: Mapping[str, object], _: Permissions) -> Subject:
    """Show the arguments of a call to the person who approves it."""
    return Subject(msgspec.json.encode(args, enc_hook=fields_or_text).decode())


def _condition(name: str, decides: object, function: Callable[..., Any]) -> NeedsApproval | None:
    """Return a function that decides whether a call with given arguments needs approval.

    `decides` is the value of the option `needs_approval`. Return None if `decides` is not a
    function.

    An error in `decides`, or a result that is not a bool, counts as True. `decides` gets the call's
    arguments, and the defaults of the tool's `function`.
    Raises: WrongArgument if `decides` does not accept the tool's arguments.
    """
    if not callable(decides):
        return None
    declared = inspect.signature(function).parameters.values()
    defaults = {each.name: each.default for each in declared if each.name != CALL}
    _require_condition(name, decides, tuple(defaults))
    defaults = {
        key: value for key, value in defaults.items() if value is not inspect.Signature.empty
    }

    def needs_approval(args: Mapping[str, object]) -> bool:
        try:
            decided: object = decides(**{**defaults, **args})
            if inspect.iscoroutine(decided):
                decided.close()
            if not isinstance(decided, bool):
                raise TypeError(f"it returned a {type(decided).__name__} instead of a bool")
            return decided
        except Exception as error:  # noqa: BLE001 - the person decides if the function cannot
            log_failure(_log, error, "needs_approval of the tool %s failed: the call asks", name)
            return True

    return needs_approval


def _require_condition(name: str, decides: Callable[..., object], names: tuple[str, ...]) -> None:
    called: object = getattr(decides, "__call__", None)  # noqa: B004 - of an object that is called
    if inspect.iscoroutinefunction(decides) or inspect.iscoroutinefunction(called):
        raise WrongArgument(f"needs_approval of the tool {name} is async: use a plain function")
    try:
        signature = inspect.signature(decides)
    except ValueError:  # some functions in C have none
        return
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise WrongArgument(
            f"needs_approval of the tool {name} takes {signature}, but it is called with the "
            f"arguments of the tool: {', '.join(names) or 'none'}"
        ) from error


def _require_function(function: object) -> None:
    if not callable(function):
        raise WrongArgument(f"a tool is made of a function, not of {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise WrongArgument(
            f"{getattr(function, '__qualname__', 'it')}() cannot be a tool: it yields, and a tool "
            "returns one result"
        )
    try:
        inspect.signature(function)
    except ValueError as error:
        name = getattr(function, "__qualname__", repr(function))
        reason = "Python does not know its parameters; call it in a function of your own"
        raise WrongArgument(f"{name} cannot be a tool: {reason}") from error


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise WrongArgument(
            f"{name!r} cannot be a tool's name: use 1 to 64 letters, digits, _ or -, beginning "
            "with a letter or _"
        )
    return name


def _run_of(name: str, function: Callable[..., Any], parameters: Parameters) -> Run:
    """Return a function that checks arguments, calls `function`, and converts its result."""

    async def run(call: ToolCall) -> ToolOutput:
        arguments = arguments_of(name, parameters, call.args)
        if parameters.takes_call:
            arguments[CALL] = call
        if inspect.iscoroutinefunction(function):
            return _output_of(name, await function(**arguments))
        value = await in_tool_thread(_called, name, function, arguments)
        if inspect.isawaitable(value):  # an object with an async __call__
            value = await value
        return _output_of(name, value)

    return run


def _called(name: str, function: Callable[..., Any], arguments: dict[str, object]) -> object:
    try:
        return function(**arguments)
    except StopIteration as error:  # a future cannot carry StopIteration: its awaiter would hang
        raise ToolError(name, "it raised StopIteration") from error


def _parts_of(value: object) -> list[object]:
    return list(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else [value]


def _text_of(name: str, value: object) -> str:
    """Return `value` as text. Raises: ToolError if the value contains bytes or media."""
    if isinstance(value, str):
        return value
    text = json_of(value).decode()
    plain = msgspec.to_builtins(
        value,
        builtin_types=(bytes, bytearray, memoryview),
        str_keys=True,
        enc_hook=lambda _: None,  # a pydantic model has its own JSON form, without bytes
    )
    json.dumps(plain, default=partial(_refuse_bytes, name))
    return text


def _refuse_bytes(name: str, _: object) -> None:
    reason = "return perdure.media(...) of them, alone or in a list with texts, or text"
    raise ToolError(name, f"it returned bytes: {reason}")


def _output_of(name: str, value: object) -> ToolOutput:
    if isinstance(value, ToolOutput):
        return value
    if value is None:
        return ToolOutput("done")
    if isinstance(value, str):
        return ToolOutput(value)
    found = _parts_of(value)
    media = [each for each in found if isinstance(each, InlineMedia | MediaPart)]
    try:
        if media:
            texts = [
                _text_of(name, each)
                for each in found
                if not isinstance(each, InlineMedia | MediaPart)
            ]
            return ToolOutput("\n".join(texts or [each.mime_type for each in media]), media=media)
        return ToolOutput(_text_of(name, value))
    except (TypeError, ValueError) as error:
        told = "the result of the tool %s cannot be written as JSON"
        log_failure(_log, error, told, name, level=logging.WARNING)
        reason = f"its result (of type {type(value).__name__}) cannot be written as JSON ({error})"
        raise ToolError(name, reason) from error
