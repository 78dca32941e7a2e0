"""The files of the index, below ``.perdure/search``: the catalogue and the parts that it names.

They can be made again, so nothing waits for the disk. Whoever changes the catalogue holds the lock
of the index for that moment, and removes what it no longer names.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

from perdure.stores.jsonl.disk.folder import Folder, Stamp
from perdure.stores.jsonl.search.catalogue import Catalogue, Piece, decode, encode, is_whole
from perdure.stores.jsonl.search.part_file import PartFile, Whole, name_of, part_bytes
from perdure.stores.regular_files import check_folder, open_to_read, read_regular, status_of

KIND = "search"
LOCK, BUILDING = "search", "indexing"
"""Held for as long as a change takes, and by who makes the index grow, from reading to writing."""

CATALOGUE = "catalogue"


class IndexFiles:
    """The index of one folder, for one thread at a time."""

    def __init__(self, folder: Folder, dialect: str) -> None:
        self.folder = folder
        self.dialect = dialect
        self.path = folder.inner / KIND
        self._known: tuple[Stamp, Catalogue | None] | None = None

    # -- reading

    def catalogue(self) -> Catalogue | None:
        """What there is; None where there is nothing of use.

        Raises: StoreUnavailable.
        """
        try:
            with open_to_read(self.path / CATALOGUE, buffering=0) as file:
                stamp = Stamp.of(os.fstat(file.fileno()))
                if self._known is None or self._known[0] != stamp:
                    self._known = (stamp, decode(file.read(), self.dialect))
                return self._known[1]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.folder.fail(error)

    def stamp(self) -> Stamp | None:
        """What tells whether somebody changed it."""
        try:
            return Stamp.of(status_of(self.path / CATALOGUE))
        except OSError:
            return None

    def part(self, piece: Piece) -> PartFile:
        """A part, open. Raises what ``pages.DAMAGE`` is, and OSError."""
        return PartFile(self.path / piece.name, piece.size)

    def whole(self, piece: Piece) -> Whole:
        """All of a part. Raises as `part`."""
        file = self.part(piece)
        try:
            return file.whole()
        finally:
            file.close()

    def has(self, piece: Piece) -> bool:
        """Whether the file of a part is there, as long as it was."""
        try:
            return status_of(self.path / piece.name).st_size == piece.size
        except OSError:
            return False

    def is_as_written(self, piece: Piece, whole: Whole) -> bool:
        """Whether a part is what its name says, and what the catalogue does. Raises: OSError."""
        is_named = name_of(read_regular(self.path / piece.name)) == piece.name
        return is_named and _piece(piece.name, piece.size, whole) == piece

    def is_damaged(self) -> bool:
        """Whether the catalogue is not as it was written: there is no index then."""
        try:
            return not is_whole(read_regular(self.path / CATALOGUE))
        except OSError:
            return False

    def size_bytes(self) -> int:
        """What the index takes."""
        try:
            return sum(path.lstat().st_size for path in self.path.iterdir())
        except OSError:
            return 0

    # -- changing it

    @contextmanager
    def hold_lock(self) -> Generator[None]:
        """Nobody else changes the index meanwhile."""
        with self.folder.hold_lock(LOCK, ""):
            yield

    def make(self) -> None:
        """Make the folder of the index. Raises: StoreReadOnly, StoreFull, StoreUnavailable."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            check_folder(self.path)
        except OSError as error:
            self.folder.fail(error)

    def add(self, whole: Whole) -> Piece:
        """Write a part; nobody finds it before the catalogue names it.

        Raises: StoreReadOnly, StoreFull, StoreUnavailable.
        """
        content = part_bytes(whole)
        name = name_of(content)
        self.folder.put_beside(self.path / name, content)
        return _piece(name, len(content), whole)

    def put(self, catalogue: Catalogue) -> None:
        """`catalogue` is what there is from now on; what it does not name goes.

        Raises: StoreReadOnly, StoreFull, StoreUnavailable.
        """
        self.folder.put_beside(self.path / CATALOGUE, encode(catalogue))
        self.sweep(catalogue)

    def sweep(self, catalogue: Catalogue | None) -> None:
        """Remove every file that `catalogue` does not name; without one, all.

        Raises: StoreReadOnly, StoreUnavailable.
        """
        named = set[str]() if catalogue is None else {piece.name for piece in catalogue.pieces}
        if catalogue is not None:
            named.add(CATALOGUE)
        try:
            beside = (path for path in self.path.iterdir() if path.name not in named)
            found = [path for path in beside if path.is_symlink() or not path.is_dir()]
        except FileNotFoundError:
            return
        except OSError as error:
            self.folder.fail(error)
        # The catalogue first: it names no part that is not there.
        for path in sorted(found, key=lambda each: each.name != CATALOGUE):
            with suppress(FileNotFoundError):
                self.folder.remove(path)


def _piece(name: str, size: int, whole: Whole) -> Piece:
    said = whole.part.said
    ats = [text.at for text in said]
    return Piece(
        name=name,
        size=size,
        texts=len(said),
        words=sum(text.length for text in said),
        last=said[-1].position,
        first_at=min(ats),
        last_at=max(ats),
        sessions=tuple(sorted({place.session for place in whole.places})),
    )
