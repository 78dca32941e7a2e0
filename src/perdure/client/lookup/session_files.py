"""Find the session of a file, in a store of session files or among the imported sessions."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from perdure.errors import NotImported
from perdure.session.ids import StreamId
from perdure.stores.session_store import SessionStore


@runtime_checkable
class SessionFiles(Protocol):
    """The interface of a store that stores each session in a file of its own."""

    async def session_at(self, path: Path) -> StreamId | None:
        """Return the session in the file `path`; None if the store has no such session file.

        Raises: FormatError for a link or a pipe in the store's folder; StoreTooNew if a newer
        perdure wrote the file; StoreUnavailable if the file cannot be read.
        """
        ...


class FoundFile(msgspec.Struct, frozen=True):
    """The session that belongs to a file.

    `is_behind` is true if the file contains newer entries than the imported session.
    """

    session: StreamId
    is_behind: bool = False


async def find_file(store: SessionStore, path: Path) -> FoundFile:
    """Return the session that `store` keeps in the file `path`, or the one imported from `path`.

    Raises: NotImported if the file was not imported or does not exist; Erased if its session was
    erased; FormatError if `path` is not a readable session.
    """
    if isinstance(store, SessionFiles):
        session = await store.session_at(path)
        if session is not None:
            return FoundFile(session)
    if _is_missing(path):
        raise NotImported(str(path), is_missing=True)
    # By name: what reads files of other programs takes longer to load than most calls take.
    recordings: Any = importlib.import_module("perdure.interop.recordings")
    found: Any = await recordings.imported_as(store, path)
    if found is None:
        raise NotImported(str(path))
    return FoundFile(StreamId(found.session), is_behind=bool(found.is_behind))


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False  # it exists but cannot be read
    return False
