"""Find and remove unreferenced contents of a folder.

A process that writes lines with references to contents holds a shared lock on the contents. The
writing process acquires the shared lock before it checks that a content exists, and releases the
lock after writing the lines. A vacuum acquires the lock exclusively and scans every file again that
changed since the first scan. So a vacuum never removes a content that a concurrent write
references. If a session cannot be read completely, its references are unknown and no content is
removed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from perdure.errors import SessionNotFound, StoreError
from perdure.session.entries import Entry
from perdure.stores.jsonl.contents import entries_of
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder, Stamp
from perdure.stores.jsonl.disk.sidefiles import blobs_in
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.regular_files import NotRegular, open_to_read, status_of

LOCK = "contents"

NAME = re.compile(rb"sha256-[0-9a-f]{64}")
"""The pattern of a content's name in a reference."""


def all_held(folder: Folder) -> AbstractContextManager[None]:
    """Prevent the removal of any content during the block."""
    return folder.hold_lock(LOCK, "", is_shared=True)


@contextmanager
def held_for(folder: Folder, entries: Iterable[Entry]) -> Generator[None]:
    """During the block, prevent the removal of contents that `entries` reference."""
    if any(NAME.search(entry.body) for entry in entries):
        with all_held(folder):
            yield
    else:
        yield


def remove_unreferenced(shelf: SessionIndex, among: Collection[str] | None = None) -> list[int]:
    """Remove unreferenced contents (only those in `among`, if given); return their sizes.

    Durable: if the folder is synced, the removals are on the disk when the call returns.
    """
    folder = shelf.folder
    waiting = {path.name: path for path in blobs_in(folder)}
    if among is not None:
        waiting = {name: path for name, path in waiting.items() if name in among}
    looking = ReferenceScan(shelf)
    _leave_out(waiting, looking)
    if not waiting:
        return []
    with folder.hold_lock(LOCK, ""):
        _leave_out(waiting, looking)
        sizes = sizes_of(waiting.values())  # another vacuum may have removed some of them
        for name in sizes:
            folder.remove(waiting[name])
    return list(sizes.values())


def sizes_of(contents: Iterable[Path]) -> dict[str, int]:
    """Return the sizes of those `contents` that have a file, by name."""
    found: dict[str, int] = {}
    for path in contents:
        with suppress(FileNotFoundError):
            found[path.name] = path.lstat().st_size
    return found


def _leave_out(waiting: dict[str, Path], looking: ReferenceScan) -> None:
    """Remove from `waiting` each content whose name is in a file that changed after the scan."""
    for path, stamp in (*looking.folder.files(), *_partials(looking.folder)):
        if waiting and looking.at.get(path) != stamp:
            names = looking.names_in(path)
            if names is None:
                waiting.clear()
            for name in names or ():
                waiting.pop(name, None)
            looking.at[path] = stamp


def _partials(folder: Folder) -> Iterator[tuple[Path, Stamp]]:
    for path in (folder.inner / "partials").iterdir():
        with suppress(FileNotFoundError, NotRegular):
            yield path, Stamp.of(status_of(path))


class ReferenceScan:
    """Scans files of a folder for names of contents; `at` maps each scanned file to its stamp."""

    def __init__(self, shelf: SessionIndex) -> None:
        self.folder = shelf.folder
        self.at: dict[Path, Stamp] = {}
        self._codec = shelf.codec
        self._feed = Feed(shelf.folder)

    def names_in(self, path: Path) -> set[str] | None:
        """Return the names of contents that a file references; None if a part is unreadable.

        A record may contain the bytes of a picture without the name of the picture's content. So a
        search of the file's text alone does not find all names.
        """
        try:
            found = self._found_in(path)
        except SessionNotFound:  # erased meanwhile
            return set()
        except (OSError, StoreError):  # of another user, or of a newer perdure
            return None
        return None if found is None else {name.decode() for name in found}

    def _found_in(self, path: Path) -> set[bytes] | None:
        found: set[bytes] = set()
        with suppress(FileNotFoundError), open_to_read(path) as file:
            for line in file:
                found.update(NAME.findall(line))
        # Entries are written to their file before the feed. In the other order, entries added in
        # between would be in the feed only, and the session would seem to have lost them.
        self._feed.refresh()
        log = Log(path, self._codec)
        if log.refresh():
            if log.faults or log.unreadable or self._feed.head(log.header.id) > log.head:
                return None
            for entry in entries_of(log, range(len(log.rows))):
                found.update(NAME.findall(entry.body))
        return found
