"""The errors for wrong arguments: they state the accepted values and the given value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sized
from typing import cast

from perdure.errors.advice import nearest_name
from perdure.errors.usage import WrongArgument


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode `text`; it cannot encode half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def unknown_parameter(owner: str, name: str, names: Iterable[str]) -> WrongArgument:
    """Return the error for the unknown keyword `name`; the function `owner` accepts `names`."""
    near = nearest_name(name, names)
    advice = f"did you mean {near!r}?" if near else f"it takes {', '.join(sorted(names))}"
    return WrongArgument(f"{owner} has no parameter {name!r}; {advice}", argument=name)


def wrong(owner: str, name: str, takes: str, given: object) -> WrongArgument:
    """Return the error that the argument `name` of `owner` has the wrong value `given`."""
    kind = "None" if given is None else f"{type(given).__name__}"
    if "not empty" in takes and isinstance(given, Sized) and not given:
        kind = "an empty one"
    elif takes.startswith("a list of") and given is not None:
        kind = _not_listed(name, takes, given)
    elif isinstance(given, tuple) and takes.startswith("a tuple of"):
        kind = f"a tuple of {len(cast('tuple[object, ...]', given))}"
    elif isinstance(given, str) and not is_utf8(given):
        kind = "text with half of a character pair in it"
    elif isinstance(given, str) and ("'" in takes or "fits" in takes):
        kind = f"{given!r:.40}"
    elif isinstance(given, int | float) and not isinstance(given, bool):
        kind = _number(given) if "number" in takes or "int" in takes else kind
        if takes.startswith("Entry or str"):
            kind = f"{_number(given)}, which is no id: use entry.id"
    elif re.search(rf"(^|or |gives a ){kind}\b", takes):
        kind = f"{kind} of {_module_of(cast('object', given))}"
    return WrongArgument(f"{owner} takes {takes} as {name}, not {kind}", argument=name, takes=takes)


def _not_listed(name: str, takes: str, given: object) -> str:
    """Describe the wrong value `given` of an argument; `takes` describes the expected list."""
    kind = type(given).__name__
    if isinstance(given, list | tuple | set | frozenset | dict):
        items = list(cast("Iterable[object]", given))
        is_named = takes.startswith("a list of '")
        others = [x for x in items if is_named and type(x) is str and repr(x) not in takes]
        if others:
            return f"{kind} with {others[0]!r:.40}"
        wrong = sorted({type(each).__name__ for each in items if type(each).__name__ not in takes})
        told = ", ".join(wrong[:3]) or ("something else" if isinstance(given, list | tuple) else "")
        return f"{kind} of {told}" if told else kind
    is_item = kind in takes or (callable(given) and "a function" in takes)
    hint = "" if "[" in name else f", {name}=[...]"
    return f"one {kind}: put it into a list{hint}" if is_item else kind


def _module_of(given: object) -> str:
    module = type(given).__module__
    return "perdure.blocking" if ".sync." in module else module


def _number(given: int | float) -> str:
    """Return the number `given` as text, or a description if it is too long to print."""
    if isinstance(given, int) and abs(given) >= 10**20:
        return "one of more than 20 digits"
    return f"{given}"
