"""Resolve what a person typed for a session: its id, the beginning of that, or a session file.

What has a slash is a path, since no id has one; so is what ends as session files do, unless it is
the id of a session. A file means its session in the store; nothing is imported.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure.apps.cli.exits import ImportNeeded, PathNotFound, UsageMistake
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.text import safe
from perdure.client.lookup.session_files import find_file
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import NotImported, SessionNotFound
from perdure.session.ids import StreamId

_ENDINGS = (".json", ".jsonl")


async def opened_session(store: Store, named: str) -> Session:
    """The session that `named` means.

    Raises: SessionNotFound, AmbiguousId; PathNotFound, ImportNeeded, FormatError, UsageMistake.
    """
    return await store.open(await named_session(store, named))


async def named_session(store: Store, named: str) -> StreamId:
    """The id of the session that `named` means.

    Raises: as `opened_session`.
    """
    if "/" not in named:
        try:
            return await store.find(named)
        except SessionNotFound:
            if not named.endswith(_ENDINGS):
                raise
    path = await asyncio.to_thread(Path(named).expanduser)
    if path.is_dir():
        raise UsageMistake(f"{named} is a folder: name one file of it, or a session's id")
    if not path.is_file():
        raise PathNotFound(named)
    try:
        found = await find_file(store.backend, path)
    except NotImported:
        raise ImportNeeded(named) from None
    if found.is_behind:
        remark(f"{safe(named)} has changed since it was imported; `perdure import` adds the rest")
    return found.session


def require_folder(named: Path) -> None:
    """Raises: PathNotFound when there is no `named`; UsageMistake when it is not a folder."""
    if named.is_dir():
        return
    if named.exists():
        raise UsageMistake(f"{named} is a file: name a folder after --cwd")
    raise PathNotFound(str(named))
