"""The hooks of one store's sessions: registered by point, run in the order of registration.

A hook that fails, or returns an invalid answer, is reported and skipped; a failing hook of a guard
blocks the action instead. A hook that raises CancelledError also counts as failed, unless the
caller itself is cancelled.
"""

from __future__ import annotations

import copy
import inspect
import logging
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from perdure.bounds.callbacks import run_callback
from perdure.bounds.short_repr import ShortRepr
from perdure.errors import WrongArgument
from perdure.secrets.mask import log_failure
from perdure.session.argument_checks import takes_declared
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.engine.hooks import points
else:
    points = Later("perdure.engine.hooks.points")

Hook = Callable[[Any], Any]
"""A plain or async function.

The function receives the point, and returns an answer, or None for no answer.
"""

P = TypeVar("P", bound="points.HookPoint")

_PARAMETERS = {"on_question": "question: OpenQuestion", "renew_credentials": "provider: str"}
"""The parameter of each callback that is not a hook."""

_log = logging.getLogger(__name__)


class Registered(ShortRepr, frozen=True):
    """A hook that is registered at a point.

    `is_guard` is whether a failure of the hook blocks the action; if None, the point decides.
    """

    hook: Hook
    is_guard: bool | None


class Hooks:
    """Registered hooks, for example of a store or an agent.

    Hooks can be added and removed at any time.

    The hooks that `before` contains when this object is created run first.
    """

    def __init__(self, *before: Hooks | None) -> None:
        self._before = tuple(hooks for hooks in before if hooks is not None)
        self._hooks: dict[str, list[Registered]] = {}

    def __repr__(self) -> str:
        own = {name: len(hooks) for name, hooks in self._hooks.items() if hooks}
        return f"<Hooks {own}>"

    @takes_declared
    def on(
        self, name: points.HookName, hook: Hook, *, is_guard: bool | None = None
    ) -> Callable[[], None]:
        """Run `hook` at the point `name` from now on.

        `is_guard` says whether a failure of the hook blocks the action; if None, the point decides.
        Shape: the returned function removes the hook.
        Raises: WrongArgument if the point is unknown, or if the hook cannot be called with the
        point as its only argument.
        """
        checked_callback(hook, "hook", name)
        registered = Registered(hook, is_guard)
        self._hooks.setdefault(name, []).append(registered)

        def remove() -> None:
            self._hooks[name] = [each for each in self._hooks[name] if each is not registered]

        return remove

    def has(self, name: points.HookName) -> bool:
        """Return whether a hook is registered at the point."""
        return bool(self.at(name))

    async def tell(self, point: points.HookPoint) -> None:
        """Run the hooks of a point that accepts no answer."""
        await self.ask(point)

    async def ask(self, point: P) -> tuple[P, object]:
        """Run the hooks; return the point with their changes, and the final answer.

        Each hook gets its own copy of the point's data, so a hook can change the data only with an
        answer.
        Shape: the answer is a `Block`, a value of a type that the point accepts, or None.
        """
        for registered in self.at(point.name):
            answer = await _answer(registered, point)
            if answer is None:
                continue
            field = point.changes.get(type(answer))
            if field is None:
                return point, answer
            point = msgspec.structs.replace(point, **{field: answer})
        return point, None

    def at(self, name: points.HookName) -> tuple[Registered, ...]:
        """Return the hooks of one point, in the order in which they run."""
        first = (each for hooks in self._before for each in hooks.at(name))
        return (*first, *self._hooks.get(name, ()))


C = TypeVar("C", bound="Hook | None")


def checked_callback(callback: C, argument: str, point: str | None = None) -> C:
    """Return `callback` if it can be called with one argument; None is allowed.

    The error message names the hook point `point` if `callback` is a hook; otherwise it names
    `argument`, the argument that contained `callback`.

    Raises: WrongArgument if `callback` cannot be called with one argument.
    """
    name = argument if point is None else f"the hook of {point}"
    if callback is None or not (problem := _problem_of(callback)):
        return callback
    gets = _PARAMETERS.get(argument) or f"point: {_class_of(point)}"
    raise WrongArgument(
        f"{name} {problem}: use a function like `def f({gets})`, plain or async", argument=argument
    )


def _problem_of(callback: Any) -> str | None:
    if _yields(callback):
        return "yields, but it has to return"
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # some functions in C and mocks of functions have none
        return None
    try:
        signature.bind(None)
    except TypeError:
        return f"takes {signature}, but it is called with one argument"
    return None


def _yields(callback: Any) -> bool:
    try:
        return inspect.isgeneratorfunction(callback) or inspect.isasyncgenfunction(callback)
    except TypeError:  # ``Mock(spec=function)``: the flags of its code are a Mock, too
        return False


def _class_of(point: str | None) -> str:
    classes = points.HookPoint.__subclasses__()
    return next(each.__name__ for each in classes if each.name == point)


async def _answer(registered: Registered, point: points.HookPoint) -> object:
    try:
        answer: object = await run_callback(registered.hook, _detached(point))
        if answer is not None and not isinstance(answer, point.takes):
            raise TypeError(f"it takes no {type(answer).__name__} as an answer")
        return answer
    except Exception as error:  # noqa: BLE001 - other hooks continue after any error
        log_failure(_log, error, "a hook of %s failed", point.name)
        is_guard = point.is_guard if registered.is_guard is None else registered.is_guard
        reason = f"a hook of {point.name} failed ({type(error).__name__})"
        return points.Block(reason) if is_guard else None


def _detached(value: Any) -> Any:
    """Return `value` with copies of its dicts and lists; if it has none, return `value` itself."""
    if isinstance(value, dict | list):
        return _copied(cast("dict[Any, Any] | list[Any]", value))
    if type(value) is tuple:
        items = cast("tuple[Any, ...]", value)
        copies = tuple(map(_detached, items))
        return items if all(map(operator.is_, items, copies)) else copies
    if not isinstance(value, msgspec.Struct):
        return value
    made = value
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if (own := _detached(field)) is not field:
            made = copy.copy(value) if made is value else made
            msgspec.structs.force_setattr(made, name, own)
    return made


def _copied(value: dict[Any, Any] | list[Any]) -> Any:
    """Return a copy of `value`, however deeply its dicts and lists are nested."""
    top: list[Any] = [value]
    unfinished: list[Any] = [top]
    while unfinished:
        made = unfinished.pop()
        is_dict = isinstance(made, dict)
        items = cast("dict[Any, Any]", made).items() if is_dict else enumerate(made)
        for key, each in tuple(items):
            if isinstance(each, dict | list):
                made[key] = copy.copy(cast("Any", each))
                unfinished.append(made[key])
            else:
                made[key] = _detached(each)
    return top[0]
