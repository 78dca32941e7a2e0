"""Texts made from a regular expression to slow the expression down, and a measurement of the
slowdown.

For each repetition in a pattern, a text consists of a prefix that leads to the repetition, and many
copies of a piece that the repetition matches. On a text like this, a vulnerable expression takes
quadratic or exponential time.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import perdure

_parser: Any = importlib.import_module("re._parser")

UNITS = (" ", "a", "-", "\n", "=", "0", "`", "{{", "\\", '"', "'", "a.", "a ", "[", "<", "\u200b")
"""Texts that are repeated for every pattern, whatever the pattern matches."""

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_SEARCHES = ("search", "finditer", "findall", "sub", "subn", "split")
_FAST_S = 0.03
_TICK_S = 0.004
"""The smallest step in which processor time is measured."""
MOST_S = 2.0
"""Seconds of processor time after which work counts as endless."""


class Pattern(NamedTuple):
    """A pattern of a module, and whether every match is anchored at one position."""

    module: str
    name: str
    pattern: re.Pattern[Any]
    is_anchored: bool


def modules() -> Iterator[ModuleType]:
    """Every module of perdure."""
    for found in pkgutil.walk_packages(perdure.__path__, "perdure."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def patterns() -> Iterator[Pattern]:
    """Yield each compiled pattern of a module once, including patterns in tuples and dicts."""
    places: dict[re.Pattern[Any], tuple[str, str]] = {}
    used: dict[re.Pattern[Any], set[str]] = {}
    for module in modules():
        source = Path(module.__file__ or "").read_text(encoding="utf-8")
        for name, value in vars(module).items():
            for pattern in _within(value):
                places.setdefault(pattern, (module.__name__, name))
                calls = set(re.findall(rf"\b{re.escape(name)}\.(\w+)", source))
                used.setdefault(pattern, set()).update(calls)
    for pattern, (module_name, name) in places.items():
        is_anchored = bool(used[pattern]) and not used[pattern] & {*_SEARCHES}
        yield Pattern(module_name, name, pattern, is_anchored)


def _within(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, tuple | list | set | frozenset):
        for below in cast("list[Any]", value):
            yield from _within(below, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        for below in cast("dict[Any, Any]", value).values():
            yield from _within(below, depth + 1)


def texts_for(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], Any]]:
    """Yield functions that build a hostile text of a given length for `pattern`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = _parser.parse(pattern.pattern, pattern.flags)
    pairs = [*_pumps(tree, ""), ("", _least(tree)[:-1] or "a"), *(("", unit) for unit in UNITS)]
    for before, pump in dict.fromkeys(pairs):
        for end in ("", "\0"):
            yield _maker(pattern, before, pump or "a", end)
        yield _maker(pattern, "", before + (pump or "a"), "")
        yield _maker(pattern, "", before + (pump or "a") * 3, "(")


def _maker(pattern: re.Pattern[Any], before: str, unit: str, end: str) -> Callable[[int], Any]:
    def made(length: int) -> Any:
        text = before + unit * max(1, (length - len(before)) // len(unit)) + end
        return text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text

    return made


def seconds_of(work: Callable[[], object]) -> float:
    """Return the processor time of `work`, which is stopped after `MOST_S`.

    The garbage collector is off, because its time depends on objects that earlier tests left.
    """
    is_collected = gc.isenabled()
    gc.disable()
    begun = time.process_time()
    signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
    try:
        work()
    except _TooLong:
        return float("inf")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if is_collected:
            gc.enable()
    return time.process_time() - begun


class _TooLong(BaseException):
    """Raised when the time limit is over."""


def _give_up(*_: object) -> None:
    raise _TooLong


def growth(work: Callable[[Any], object], made: Callable[[int], Any], length: int) -> float:
    """Return how many times longer `work` takes on four times the text; 0 if too short to measure.

    Return the best of up to three measurements, because other programs use the machine too.
    """
    best, large = float("inf"), made(4 * length)
    for _ in range(3):
        after = seconds_of(partial(work, large))
        if after == float("inf"):
            return after
        if after < _FAST_S:
            return 0.0
        before = seconds_of(partial(_four_times, work, made(length))) / 4
        best = min(best, after / max(before, _TICK_S / 4))
        if best < 6:
            return best
    return best


def _four_times(work: Callable[[Any], object], text: Any) -> None:
    """Run `work` on `text` four times, to compare with one run on a text four times as long."""
    for _ in range(4):
        work(text)


# ---------------------------------------------------------------- out of a pattern's own form


def _pumps(tree: Any, before: str) -> Iterator[tuple[str, str]]:
    """For each repetition in the pattern, yield the text before it and a text that it repeats."""
    for op, value in tree:
        kind = str(op)
        if kind in _REPEATS:
            least, most, body = value
            if str(most) == "MAXREPEAT" or most > 8:
                yield from ((before, each) for each in _bodies(body))
            yield from _pumps(body, before)
            before += _least(body) * max(1, min(least, 60)) if least else ""
            continue
        if kind in ("SUBPATTERN", "ATOMIC_GROUP"):
            yield from _pumps(value[3] if kind == "SUBPATTERN" else value, before)
        if kind == "BRANCH":
            for branch in value[1]:
                yield from _pumps(branch, before)
                yield before, _least(branch) + "\0"
        before += _least([(op, value)])


def _bodies(body: Any) -> list[str]:
    if len(body) == 1 and str(body[0][0]) == "IN":
        return list(dict.fromkeys(_members(body[0][1])))
    return [_least(body) or "a"]


def _least(tree: Any) -> str:
    """Return a short text that the pattern could match."""
    text = ""
    for op, value in tree:
        match str(op):
            case "LITERAL":
                text += chr(value)
            case "NOT_LITERAL":
                text += "b" if chr(value) == "a" else "a"
            case "ANY":
                text += "a"
            case "IN":
                text += _members(value)[0]
            case "SUBPATTERN":
                text += _least(value[3])
            case "ATOMIC_GROUP":
                text += _least(value)
            case "BRANCH":
                text += _least(value[1][0])
            case kind if kind in _REPEATS:
                text += _least(value[2]) * min(value[0], 60)
            case _:
                pass
    return text


def _members(items: Any) -> list[str]:
    found: list[str] = []
    is_negated = False
    for op, value in items:
        match str(op):
            case "NEGATE":
                is_negated = True
            case "LITERAL":
                found.append(chr(value))
            case "RANGE":
                found.append(chr(value[0]))
            case "CATEGORY":
                found.append(_of_category(str(value)))
            case _:
                pass
    if is_negated:
        return [next(each for each in "a !1-\t\u00e9" if each not in found)]
    return found or ["a"]


def _of_category(name: str) -> str:
    if "NOT_" in name:
        return "!" if "WORD" in name else "a"
    return "1" if "DIGIT" in name else " " if "SPACE" in name else "a"
