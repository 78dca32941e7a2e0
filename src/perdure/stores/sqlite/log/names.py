"""Index the name parts of sessions for lists.

Commits write the index of name parts, and ``verify`` checks it.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from perdure.session.info import SessionInfo
from perdure.stores.name_parts import is_renamed, parts_of
from perdure.stores.protocol import Problem
from perdure.stores.sqlite.rows import INFO_COLUMNS, Tables, info_of_row, namespace_no

_ADD = "INSERT OR IGNORE INTO name_part VALUES (?, ?, ?)"

_REMOVE = "DELETE FROM name_part WHERE namespace = ? AND part = ? AND stream = ?"

# Separate: SQLite writes the indexes of every column that is set, changed or not.
_PLACE = "UPDATE stream SET cwd = ?, status = ? WHERE no = ?"

_SESSIONS = f"""
SELECT {INFO_COLUMNS}, s.no FROM stream AS s
WHERE s.kind = 'session' AND s.status <> 'erased' AND s.namespace = ? ORDER BY s.no
"""  # noqa: S608 - put together from constants

_PARTS = "SELECT part, stream FROM name_part WHERE namespace = ?"


def list_new(tables: Tables, namespace: int, number: int, info: SessionInfo) -> None:
    """Add the new stream `number` to the index of lists."""
    tables.run_many(_ADD, [(namespace, part, number) for part in sorted(parts_of(info))])


def list_changed(
    tables: Tables, namespace: int, number: int, before: SessionInfo, info: SessionInfo
) -> None:
    """Update the index of lists after the info of stream `number` changed."""
    if (info.cwd, info.status) != (before.cwd, before.status):
        tables.run(_PLACE, (info.cwd, info.status, number))
    if is_renamed(before, info):
        old, new = parts_of(before), parts_of(info)
        tables.run_many(_REMOVE, [(namespace, part, number) for part in sorted(old - new)])
        tables.run_many(_ADD, [(namespace, part, number) for part in sorted(new - old)])


def name_problems(tables: Tables, namespace: str) -> Iterator[Problem]:
    """Yield every session whose indexed parts do not match its name and id."""
    try:
        number = namespace_no(tables, namespace)
        yield from _wrong_names(tables, number)
    except (apsw.Error, UnicodeDecodeError) as error:
        yield Problem(None, None, f"the parts of names cannot be read ({error})")


def _wrong_names(tables: Tables, number: int | None) -> Iterator[Problem]:
    kept: dict[int, tuple[int, int]] = {}
    for part, stream in tables.rows(_PARTS, number):
        count, mixed = kept.get(stream, (0, 0))
        kept[stream] = count + 1, mixed ^ hash(part)
    for row in list(tables.rows(_SESSIONS, number)):
        info, mixed = info_of_row(row), 0
        parts = parts_of(info)
        for part in parts:
            mixed ^= hash(part)
        if kept.pop(row[-1], (0, 0)) != (len(parts), mixed):
            text = "the parts of its name, by which lists find it, are wrong"
            yield Problem(info.id, None, text)
    for stream in sorted(kept, key=repr):
        text = f"parts of a name belong to session number {stream}, which is in no list"
        yield Problem(None, None, text)
