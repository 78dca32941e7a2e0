"""Validate a session's title, subject and metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from perdure.bounds.limits import require_within
from perdure.errors import WrongArgument
from perdure.errors.arguments import is_utf8
from perdure.session.argument_checks import is_kept
from perdure.session.ids import StreamId, entry_place, is_number
from perdure.session.info import SessionInfo, trim_title

_DIGITS = 18
"""A time (Unix milliseconds) in a cursor has fewer digits than this."""


def require_header(
    *,
    subject: str | None = None,
    metadata: Mapping[str, object] | None = None,
    cwd: str | None = None,
) -> None:
    """Raises: WrongArgument for invalid text, an empty subject, or metadata that is not JSON."""
    require_text("cwd", cwd)
    require_subject(subject)
    _require_json(metadata)


def require_text(name: str, text: str | None) -> None:
    """Raises: WrongArgument for the argument `name` if `text` has a NUL or a lone surrogate."""
    fault = None if text is None else _fault(text)
    if fault is not None:
        raise WrongArgument(f"{name} cannot hold {fault}: remove it", argument=name)


def title_of(title: str | None) -> str | None:
    """Return `title` without space around it; None if the result is empty.

    Raises: LimitExceeded if the title is too long; WrongArgument if it contains a NUL.
    """
    require_text("title", title)
    given = trim_title(title)
    if given is not None:
        require_within("title_characters", len(given), f"a title of {len(given):,} characters")
    return given


def require_subject(subject: str | None) -> None:
    """Raises: WrongArgument when `subject` is empty or blank; the errors of `require_text`."""
    if subject is not None and not subject.strip():
        raise WrongArgument(
            "subject is empty: give the name or id of a person, or None",
            argument="subject",
        )
    require_text("subject", subject)


def _require_json(metadata: Mapping[str, object] | None) -> None:
    waiting: list[tuple[str, object]] = [("metadata", metadata)]
    checked: set[int] = set()  # a list may contain itself
    while waiting:
        place, value = waiting.pop()
        if id(value) in checked:
            continue
        if isinstance(value, Mapping | list | tuple):
            checked.add(id(cast("object", value)))
        if isinstance(value, Mapping):
            for key, below in cast("Mapping[object, object]", value).items():
                if not isinstance(key, str):
                    _refuse(place, f"a {type(key).__name__} as a key")
                elif (fault := _fault(key)) is not None:
                    _refuse(place, f"a key with {fault}")
                inside = f"metadata[{key!r:.40}]" if value is metadata else place
                waiting.append((inside, below))
        elif isinstance(value, list | tuple):
            waiting += [(place, each) for each in cast("list[object]", value)]
        elif (fault := _fault_of(value)) is not None:
            _refuse(place, fault)


def _fault_of(value: object) -> str | None:
    """Return the reason why `value`, which is no dict or list, is not JSON; None if it is JSON."""
    if isinstance(value, str):
        return _fault(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value}"
    if value is None or (isinstance(value, int) and is_kept(value)):
        return None
    return "a number of more than 64 bits" if isinstance(value, int) else type(value).__name__


def _refuse(place: str, what: str) -> None:
    raise WrongArgument(f"{place} is JSON, which cannot hold {what}", argument="metadata")


def _fault(text: str) -> str | None:
    if "\0" in text:
        return "a NUL character"
    return None if is_utf8(text) else "half of a character pair"


def place_of(after: str | SessionInfo) -> tuple[int, str]:
    """Return the list position that the cursor `after` encodes. Raises: WrongArgument."""
    return cursor_place(after if isinstance(after, str) else after.cursor, "session")


def cursor_place(cursor: str, listed: str) -> tuple[int, str]:
    """Return the time and the id in a cursor; `listed` names the kind of list in errors.

    Raises: WrongArgument.
    """
    at, colon, id = cursor.partition(":")
    digits = at.removeprefix("-")
    if not (colon and id and is_number(digits) and len(digits) < _DIGITS):
        raise _wrong_cursor(cursor, listed)
    return int(at), id


def entry_cursor_place(cursor: str, listed: str) -> tuple[int, StreamId, int]:
    """Return the time, the stream and the seq in a cursor of a list of entries.

    Raises: WrongArgument.
    """
    at, id = cursor_place(cursor, listed)
    try:
        return at, *entry_place(id)
    except ValueError:
        raise _wrong_cursor(cursor, listed) from None


def _wrong_cursor(cursor: str, listed: str) -> WrongArgument:
    article = "an" if listed[0] in "aeiou" else "a"
    reason = (
        f"{cursor!r:.60} is no cursor: give {article} {listed} of an earlier list, or its cursor"
    )
    return WrongArgument(reason, argument="after")
