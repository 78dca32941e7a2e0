"""List the files that agents changed, newest change first."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from perdure.client.records.sessions import chosen_sessions
from perdure.client.records.tool_calls import calls_of_session
from perdure.context.files import CHANGING, PATH_ARGUMENTS
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from perdure.session.records import FileEdit, ToolCallRecord
from perdure.stores.session_store import SessionStore

_PATCHING = frozenset({"apply_patch", "applypatch", "patch"})
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_PATHS = (*PATH_ARGUMENTS, "filePath")


async def newest_edits(
    store: SessionStore, session: StreamId | None, last: int | None, cwd: str | None = None
) -> list[FileEdit]:
    """Return the `last` most recently changed files, newest change first.

    With `session`, only files changed in this session are returned; with `cwd`, only files changed
    by sessions in this folder. A failed call changes no file; calls without an outcome are omitted.
    """
    found: dict[tuple[str | None, str], FileEdit] = {}
    if last == 0:
        return []
    async for info in chosen_sessions(store, session, cwd):
        kept = _newest(found, last)
        if last is not None and len(kept) == last and info.updated_at < kept[-1].at:
            break  # no change of this session, or of those after it, is newer
        await _add(store, info, found, with_copies=session is not None)
    return _newest(found, last)


def _newest(found: dict[tuple[str | None, str], FileEdit], last: int | None) -> list[FileEdit]:
    return sorted(found.values(), key=lambda edit: (-edit.at, edit.path))[:last]


async def _add(
    store: SessionStore,
    info: SessionInfo,
    found: dict[tuple[str | None, str], FileEdit],
    *,
    with_copies: bool,
) -> None:
    for call in await calls_of_session(store, info, with_copies=with_copies):
        if not call.success:
            continue
        for path in paths_of(call):
            place = (None if path.startswith("/") else info.cwd, path)
            before = found.get(place)
            count = 1 if before is None else before.edits + 1
            if before is not None and before.at > call.called_at:
                found[place] = msgspec.structs.replace(before, edits=count)
            else:
                found[place] = FileEdit(
                    path, place[0], info.id, call.entry_id, call.name, call.called_at, count
                )


def paths_of(call: ToolCallRecord) -> Iterator[str]:
    """Yield the files that `call` changes if it succeeds."""
    name = call.name.lower()
    if name in CHANGING:
        given = (call.input.get(argument) for argument in _PATHS)
        path = next((each for each in given if isinstance(each, str) and each), None)
        if path is not None:
            yield path
    elif name in _PATCHING:
        for value in call.input.values():
            if isinstance(value, str):
                yield from (each.strip() for each in _PATCHED.findall(value))
