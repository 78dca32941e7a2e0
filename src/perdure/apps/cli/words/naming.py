"""Which session a person means: by its id, by how that begins, or by a file it was imported from.

What has a slash is a path, since no id has one; so is what ends as session files do, unless it is
the id of a session. A file that was imported stands for its session; looking imports nothing.
"""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

from perdure.apps.cli.exits import NotImported, PathNotFound, UsageMistake
from perdure.apps.terminal.output import remark
from perdure.apps.terminal.text import safe
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import SessionNotFound
from perdure.session.ids import StreamId

_ENDINGS = (".json", ".jsonl")
_RECORDINGS = "perdure.apps.cli.words.recordings"


async def opened_session(store: Store, named: str) -> Session:
    """The session that `named` means.

    Raises: SessionNotFound, AmbiguousId; PathNotFound, NotImported, FormatError, UsageMistake.
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
    # By name: what reads files takes longer to load than most commands take to run.
    recordings: Any = importlib.import_module(_RECORDINGS)
    found: Any = await recordings.imported_as(store.backend, path)
    if found is None:
        raise NotImported(named)
    if found.is_behind:
        remark(f"{safe(named)} has changed since it was imported; `perdure import` adds the rest")
    return StreamId(found.session)
