"""Type annotations, and the argument values that they accept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Protocol, TypeVar

import msgspec
import pytest

from perdure.session.argument_checks import kind_of
from tests.fakes.samples import case

T = TypeVar("T")
ONE_OR_MORE: Any = Annotated[int, msgspec.Meta(ge=1)]
Name = NewType("Name", str)


class Closes(Protocol):
    """A protocol with the method `close`."""

    def close(self) -> None: ...


class Box:
    """A class like any other."""

    def close(self) -> None: ...


FITS: list[tuple[Any, Any, Any]] = [
    # annotation, what fits, what does not
    (str, "a", 5),
    (int, 5, True),
    (int, 5, "5"),
    (float, 5, "5"),
    (float, 1.5, False),
    (bool, True, 1),
    (None, None, 0),
    (str | None, None, 5),
    (Literal["a", 1], 1, True),
    (Literal["a", 1], "a", "b"),
    (Name, "a", 5),
    (Annotated[str, msgspec.Meta(min_length=1)], "a", 5),
    (Box, Box(), object()),
    (Closes, Box(), object()),
    (Callable[[int], str], len, 5),
    (type[Box], Box, Box()),
    (tuple[str, ...], ("a",), (5,)),
    (tuple[str, ...], ["a"], "a"),
    (tuple[int, str], (1, "a"), ("a", 1)),
    (list[int], [1], ["a"]),
    (Sequence[str], ["a"], "a"),
    (Sequence[int], (1,), b"a"),
    (Iterable[str], {"a"}, "a"),
    (Iterable[int], [1], [1, "a"]),
    (Mapping[str, int], {"a": 1}, {"a": "b"}),
    (dict[str, object], {"a": object()}, {1: "a"}),
    (str | os.PathLike[str], Path(), 5),
    (str | msgspec.UnsetType, msgspec.UNSET, None),
    (float, 1e300, float("nan")),
    (float, -1, float("inf")),
    (Annotated[str, msgspec.Meta(min_length=1)], "a", ""),
    (Annotated[str, msgspec.Meta(pattern="^a+$")], "aa", "ab"),
    (ONE_OR_MORE | None, None, 0),
    (Annotated[float, msgspec.Meta(gt=0, le=1)], 1, 0),
    (Annotated[float, msgspec.Meta(gt=0, le=1)], 0.1, 1.1),
    (Annotated[int, msgspec.Meta(ge=0, lt=5)], 4, 5),
    (Annotated[float, msgspec.Meta(ge=0)], 0, float("nan")),
]


def test_value_is_accepted_exactly_if_it_matches_its_annotation() -> None:
    for annotation, good, bad in FITS:
        with case((annotation, good, bad)):
            fits = kind_of(annotation).fits
            assert fits is not None
            assert fits(good)
            assert not fits(bad)


@pytest.mark.parametrize("annotation", [Any, object, T, "Unknown", int | Any])
def test_annotation_that_cannot_be_checked_accepts_every_value(annotation: Any) -> None:
    assert kind_of(annotation).fits is None


def test_one_shot_iterator_is_not_consumed() -> None:
    items = (each for each in (5, 6))
    fits = kind_of(Iterable[str]).fits
    assert fits is not None
    assert fits(items)
    assert list(items) == [5, 6]


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (str | None, "str or None"),
        (Literal["a", "b"] | None, "'a' or 'b' or None"),
        (Sequence[str], "a list of str"),
        (Mapping[str, Any], "a dict of str"),
        (dict[str, int], "a dict of str and int"),
        (Iterable[Any], "a list"),
        (tuple[int, str], "a tuple of int, str"),
        (Callable[..., Any], "a function"),
        (float, "a number"),
        (ONE_OR_MORE | None, "int from 1 or None"),
        (Annotated[float, msgspec.Meta(gt=0, le=86_400.0)], "a number above 0 up to 86,400"),
        (Annotated[str, msgspec.Meta(min_length=1)], "str that is not empty"),
        (Annotated[str, msgspec.Meta(description="a name")], "str"),
    ],
)
def test_error_describes_the_types_that_an_argument_accepts(annotation: Any, words: str) -> None:
    assert kind_of(annotation).words == words
