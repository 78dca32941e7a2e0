"""Contents of a folder that nothing refers to: found, looked for once more, and removed.

Whoever writes lines that name a content holds the lock of contents, with others, from before it
looks whether the content is there until the lines are written. Whoever removes contents holds it
alone, and looks again into every file that changed since: what a session shows is there afterwards,
whoever came first. While a session cannot be read whole, nobody knows what it shows: nothing goes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perdure.session.entries import Entry
from perdure.stores.jsonl.contents import entries_of
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder, Stamp
from perdure.stores.jsonl.disk.sidefiles import blobs_in
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.shelf import Shelf

LOCK = "contents"

NAME = re.compile(rb"sha256-[0-9a-f]{64}")
"""What a content is called wherever something refers to it."""


@contextmanager
def held_for(folder: Folder, entries: Iterable[Entry]) -> Generator[None]:
    """Let no content be removed that `entries` name, until their lines are written."""
    if any(NAME.search(entry.body) for entry in entries):
        with folder.locked(LOCK, "", is_shared=True):
            yield
    else:
        yield


def remove_unreferenced(shelf: Shelf, among: Collection[str] | None = None) -> list[int]:
    """Remove the contents, of those `among` or of all, that nothing refers to; their sizes.

    Durable: as ``Folder.remove``.
    """
    folder = shelf.folder
    waiting = {path.name: path for path in blobs_in(folder)}
    if among is not None:
        waiting = {name: path for name, path in waiting.items() if name in among}
    looked_at: dict[Path, Stamp] = {}
    _leave_out(waiting, shelf, looked_at)
    if not waiting:
        return []
    with folder.locked(LOCK, ""):
        _leave_out(waiting, shelf, looked_at)
        return [_removed(folder, path) for path in waiting.values()]


def _removed(folder: Folder, path: Path) -> int:
    size = path.stat().st_size
    folder.remove(path)
    return size


def _leave_out(waiting: dict[str, Path], shelf: Shelf, looked_at: dict[Path, Stamp]) -> None:
    """Take every content out of `waiting` that is named in a file that changed since."""
    for path, stamp in (*shelf.folder.files(), *_partials(shelf.folder)):
        if waiting and looked_at.get(path) != stamp:
            names = names_in(shelf, path)
            if names is None:
                waiting.clear()
            for name in names or ():
                waiting.pop(name, None)
            looked_at[path] = stamp


def _partials(folder: Folder) -> Iterator[tuple[Path, Stamp]]:
    for path in (folder.inner / "partials").iterdir():
        with suppress(FileNotFoundError):
            yield path, Stamp.of(path.stat())


def names_in(shelf: Shelf, path: Path) -> set[str] | None:
    """The names of contents that a file refers to; None where some of it cannot be read.

    A record of a dialect may hold a picture itself, so the name is not always written out.
    """
    found: set[bytes] = set()
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            found.update(NAME.findall(line))
    log = Log(path, shelf.dialect)
    if log.refresh():
        if _is_damaged(log, shelf.folder):
            return None
        for entry in entries_of(log, range(len(log.rows))):
            found.update(NAME.findall(entry.body))
    return {name.decode() for name in found}


def _is_damaged(log: Log, folder: Folder) -> bool:
    feed = Feed(folder)
    feed.refresh()
    return bool(log.faults or log.unreadable) or feed.head(log.header.id) > log.head
