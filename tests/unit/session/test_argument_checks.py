"""Arguments and fields checked against their annotations."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
import pytest

import perdure
import perdure.blocking
from perdure.errors import PerdureError, WrongArgument
from perdure.session.argument_checks import (
    check_fields,
    check_whole,
    takes_all_declared,
    takes_declared,
)

NOT_TEXT: Any = 5


@takes_declared
def greet(name: str, *rest: str, loud: bool = False) -> str:
    """Greet."""
    return " ".join(("hello", name, *rest)) + ("!" if loud else "")


@takes_declared
async def greet_later(name: str) -> str:
    """Greet, later."""
    return greet(name)


@takes_all_declared
class Greeter:
    """Greets."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def names(self, count: int) -> AsyncIterator[str]:
        """Yield the name `count` times."""
        for _ in range(count):
            yield self.name

    def alone(self) -> str:
        """Nobody is named."""
        return self.name


class Inner(msgspec.Struct, frozen=True):
    text: str


class Outer(msgspec.Struct, frozen=True):
    names: tuple[str, ...] = ()
    inner: tuple[Inner, ...] = ()
    anything: object = None

    def __post_init__(self) -> None:
        check_fields(self)


def test_call_with_correct_argument_types_runs() -> None:
    assert greet("a", "b", loud=True) == "hello a b!"
    assert greet(name="a") == "hello a"
    assert asyncio.run(greet_later("a")) == "hello a"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: greet(NOT_TEXT), "greet takes str as name, not int"),
        (lambda: greet("a", NOT_TEXT), "greet takes str as rest, not int"),
        (lambda: greet("a", loud=NOT_TEXT), "greet takes bool as loud, not int"),
        (lambda: greet(name=NOT_TEXT), "greet takes str as name, not int"),
        (lambda: asyncio.run(greet_later(NOT_TEXT)), "greet_later takes str as name, not int"),
        (lambda: Greeter(NOT_TEXT), "Greeter takes str as name, not int"),
        (lambda: Greeter("a").names(count=NOT_TEXT * 1.5), r"Greeter.names takes int as count"),
    ],
)
def test_argument_of_a_wrong_type_is_rejected_before_the_call(call: Any, told: str) -> None:
    with pytest.raises(WrongArgument, match=told) as refused:
        call()
    assert isinstance(refused.value, PerdureError)
    assert isinstance(refused.value, TypeError)
    assert isinstance(refused.value, ValueError)
    assert refused.value.code == "wrong_argument"


def test_missing_argument_raises_the_type_error_of_python() -> None:
    missing: Any = greet
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        missing()


@pytest.mark.parametrize(
    ("function", "wrong", "told"),
    [
        (greet, "lud", "greet has no parameter 'lud'; did you mean 'loud'?"),
        (greet, "x", "greet has no parameter 'x'; it takes loud, name"),
        (Greeter, "nme", "Greeter has no parameter 'nme'; did you mean 'name'?"),
        (
            Greeter("A").names,
            "cont",
            "Greeter.names has no parameter 'cont'; did you mean 'count'?",
        ),
        (perdure.open, "namspace", "open has no parameter 'namspace'; did you mean 'namespace'?"),
        (
            perdure.Limits,
            "max_turn",
            "Limits has no parameter 'max_turn'; did you mean 'max_turns'?",
        ),
        (
            perdure.Budget,
            "max_usd",
            "Budget has no parameter 'max_usd'; it takes max_cost_microcents, on_exceed",
        ),
        (perdure.tool, "effct", "tool has no parameter 'effct'; did you mean 'effect'?"),
    ],
)
def test_error_for_an_unknown_keyword_suggests_the_nearest_keyword(
    function: Any, wrong: str, told: str
) -> None:
    with pytest.raises(WrongArgument) as caught:
        function(**{wrong: "A"})
    assert str(caught.value) == told


def test_function_that_accepts_any_keywords_receives_them() -> None:
    @takes_declared
    def keywords(first: int, **rest: object) -> tuple[int, dict[str, object]]:
        return first, rest

    assert keywords(first=1, second="b") == (1, {"second": "b"})


def test_checked_function_keeps_its_signature_and_docstring() -> None:
    assert inspect.iscoroutinefunction(greet_later)
    assert list(inspect.signature(greet).parameters) == ["name", "rest", "loud"]
    assert greet.__doc__ == "Greet."
    assert not hasattr(Greeter.alone, "__wrapped__")


def test_list_is_converted_if_a_tuple_is_declared() -> None:
    given: Any = ["a"]
    assert Outer(given).names == ("a",)


@pytest.mark.parametrize("given", ["abc", [5], 5, {"a": 1}])
def test_field_of_an_undeclared_type_is_rejected(given: Any) -> None:
    with pytest.raises(WrongArgument, match="Outer takes a list of str as names, not "):
        Outer(given)


def test_wrong_type_in_a_nested_value_is_rejected() -> None:
    value = Outer(inner=(Inner("a"), Inner(NOT_TEXT)))
    with pytest.raises(WrongArgument, match="Inner takes str as text, not int"):
        check_whole(value, "the message")


def test_error_for_a_built_in_type_omits_the_module() -> None:
    @takes_declared
    def take(names: list[str] | None = None, data: dict[str, object] | None = None) -> None:
        del names, data

    number_key: Any = {1: 2}
    text: Any = "a"
    with pytest.raises(WrongArgument, match="take takes str as a key of data, not int"):
        take(data=number_key)
    with pytest.raises(WrongArgument, match="as names, not one str: put it into a list"):
        take(names=text)


async def test_error_mentions_the_wrong_part_of_a_nested_value() -> None:
    message = perdure.user("Hello")
    async with perdure.open("memory:") as store:
        session = await store.create()
        rows: list[tuple[Any, str]] = [
            ([(session, [message])], r" as writes\[0\], not a tuple of 2$"),
            ([("s", [message], {})], r"takes Session \(.*\) as writes\[0\]\[0\], not str$"),
            (
                [(session, message, {})],
                r" as writes\[0\]\[1\], not one Message: put it",
            ),
            ((session, [message], {}), r" as writes\[0\], not Session$"),
        ]
        for writes, told in rows:
            with pytest.raises(WrongArgument, match=told):
                await store.commit(writes)
    number: Any = {"a": 1}
    with pytest.raises(WrongArgument, match=r"takes str as variables\['a'\], not int$"):
        perdure.Workspace(variables=number)


async def test_error_for_an_easily_confused_value_describes_the_value() -> None:
    async with perdure.open("memory:") as store:
        session: Any = await store.create()
        with pytest.raises(WrongArgument, match=r"as after, not Session$"):
            await store.recent(after=session)
        for call in (session.branch, session.pin):
            with pytest.raises(WrongArgument, match=r"not 999, which is no id: use entry\.id$"):
                await call(999)
        wrong: Any = "x"
        with pytest.raises(WrongArgument, match=r"^Schedule takes Store\.backend as store, not s"):
            type(store.schedule)(wrong, wrong)


def test_error_distinguishes_two_types_with_the_same_name() -> None:
    with perdure.blocking.open("memory:") as store:
        wrong: Any = store
        with pytest.raises(WrongArgument, match=r"as store, not Store of perdure\.blocking$"):
            perdure.Runtime(wrong)


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ([1, "read_file"], "not list of int$"),
        (("read_file", 2.5), "not tuple of float$"),
        (len, r"not one builtin_function_or_method: put it into a list, tools=\[\.\.\.\]$"),
        ("read_file", r"not one str: put it into a list, tools=\[\.\.\.\]$"),
        (3, "not int$"),
        (None, "not None$"),
    ],
)
def test_error_for_invalid_agent_tools_describes_the_given_value(tools: object, told: str) -> None:
    with pytest.raises(WrongArgument, match=told):
        perdure.Agent("a", model="test:m", tools=tools)  # type: ignore[arg-type] # what is refused


def test_error_for_a_wrong_list_contains_the_unknown_item() -> None:
    @takes_declared
    def take(roles: list[Literal["system", "user"]], tools: list[str]) -> None:
        del roles, tools

    wrong: Any = [(["user", "nope"], ["a"]), (["user"], {"a"})]
    told = [r"'system' or 'user' as roles, not list with 'nope'$", r"of str as tools, not set$"]
    for (roles, tools), text in zip(wrong, told, strict=True):
        with pytest.raises(WrongArgument, match=text):
            take(roles, tools)
