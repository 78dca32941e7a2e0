"""Selects the cases of a test that `make test` runs. `make test-all` runs all cases."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

ALL_ONLY = pytest.mark.all_only
FOR_LONG = (ALL_ONLY, pytest.mark.soak)
"""The marks of a case that runs in `make test-all` and, with more rounds, in `make soak`."""

SOAK = "PERDURE_SOAK"
"""The variable with which `make soak` multiplies the number of rounds of a test."""


def _each_kill(step: int) -> pytest.MarkDecorator:
    often = pytest.param(1 if SOAK in os.environ else 5, marks=FOR_LONG)
    return pytest.mark.parametrize("step", [step, often])


EACH_KILL = _each_kill(13)
"""Kill at every 13th and at every 5th operation; `make soak` kills at each one.

Writes, syncs and the shares of a killed write repeat in a fixed order. A single step could always
miss the same ones.
"""

EACH_KILL_OF_MANY = _each_kill(29)
"""Like `EACH_KILL`, for work of more than 200 operations: `make test` kills at every 29th one."""


def with_larger(small: object, large: object, *marks: pytest.MarkDecorator) -> list[Any]:
    """Return the cases `small` and `large`; `large` has the `marks`.

    `large` repeats everything that `small` does, so CI runs only `large`. Without `marks`, `large`
    runs only in `make test-all` and in CI.
    """
    return [
        pytest.param(small, marks=pytest.mark.contained),
        pytest.param(large, marks=marks or (ALL_ONLY,)),
    ]


def sampled(
    names: str | tuple[str, ...],
    cases: Sequence[Any],
    *,
    kind: Callable[[Any], Hashable],
    each: int = 2,
    ids: Callable[[Any], str] | None = None,
) -> pytest.MarkDecorator:
    """Parametrize a test with `cases`; `make test` runs `each` cases of every `kind`.

    The sample is spread over the cases of a kind and includes the first and the last case. If
    `each` is 1, the sample is the middle case. The cases outside the sample have the marker
    ``all_only``.

    `names` is the argument of `pytest.mark.parametrize`. If `names` is a tuple, each case is a
    tuple of the same length. A case whose kind is None always has the marker.
    """
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, case in enumerate(cases):
        if (of_kind := kind(case)) is not None:
            groups[of_kind].append(index)
    chosen = {index for group in groups.values() for index in _spread(group, each)}
    parameters: list[pytest.ParameterSet] = []
    for index, case in enumerate(cases):
        values = case if isinstance(names, tuple) else (case,)
        marks = () if index in chosen else (pytest.mark.all_only,)
        parameters.append(pytest.param(*values, marks=marks))
    return pytest.mark.parametrize(names, parameters, ids=ids)


@contextmanager
def case(what: object) -> Generator[None]:
    """Add the current case of a loop to the message of a test's failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {what!r}")
        raise


def rounds(count: int) -> int:
    """Return the rounds of a test marked ``soak``: `count`, or more under `make soak`."""
    return count * int(os.environ.get(SOAK, "1"))


def _spread(group: list[int], most: int) -> list[int]:
    if len(group) <= most:
        return group
    if most == 1:
        return [group[len(group) // 2]]
    return [group[round(step * (len(group) - 1) / (most - 1))] for step in range(most)]
