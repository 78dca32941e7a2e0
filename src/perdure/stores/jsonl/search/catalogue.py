"""What the index of a folder holds: which sessions, up to where, and which parts.

It is one small file, replaced whole; a part that it does not name is none. So whoever is killed
leaves the index as it was.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from perdure.session.ids import StreamId
from perdure.session.search.words import VERSION
from perdure.stores.jsonl.disk.feed import FeedMark
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.rows import Row
from perdure.stores.jsonl.search.branch_members import BranchMap
from perdure.stores.jsonl.search.part_file import Place
from perdure.stores.regular_files import open_to_read, status_of

FORMAT = 1

_TRAIL_BYTES = 256
"""What is read again of the end of what was indexed, to see that it is still there."""


class Known(msgspec.Struct, array_like=True, frozen=True):
    """A session file as it was when it was last indexed.

    `number` stands for the session in the parts; it is given once. The first `count` of its
    `entries` are indexed; `last` is where the last of these stands. `is_settled`: they keep their
    seqs whatever is appended. `end`: behind all entries; `trail`: the hash of what is before it.
    `title`: the words of the title it was created with, joined. A `stream` that is empty: the file
    holds no session that can be searched. `file` is its name as the system has it, in any encoding.
    Units: bytes, Unix milliseconds.
    """

    file: bytes
    stream: StreamId
    number: int
    inode: int
    size: int
    modified_ns: int
    created_at: int = 0
    title: str = ""
    entries: int = 0
    count: int = 0
    is_settled: bool = True
    last: tuple[int, int, int] = (0, 0, 0)
    leaf: int | None = None
    branching: BranchMap = BranchMap()
    end: int = 0
    trail: bytes = b""

    @property
    def name(self) -> str:
        """The name of its file."""
        return os.fsdecode(self.file)

    def looks_like(self, stamp: Stamp) -> bool:
        """The file looks as it did."""
        return (
            self.size == stamp.size
            and self.modified_ns == stamp.modified_ns
            and self.inode == stamp.inode
        )

    @property
    def is_whole(self) -> bool:
        """All of its entries are indexed."""
        return self.count == self.entries

    def begins(self, path: Path, stamp: Stamp) -> bool:
        """Whether what was indexed still begins `path`, a file that looks like `stamp`."""
        if not self.looks_like(stamp) and (stamp.inode != self.inode or stamp.size <= self.size):
            return False
        return trail_of(path, self.end) == self.trail

    def stands_in(self, path: Path) -> bool:
        """Whether what was indexed is in the file `path`."""
        try:
            stamp = Stamp.of(status_of(path))
            is_long = stamp.size >= self.end
            return stamp.inode == self.inode and is_long and trail_of(path, self.end) == self.trail
        except OSError:
            return False


class Piece(msgspec.Struct, array_like=True, frozen=True):
    """A part: its file, how many texts and words it has, their newest position and their times.

    `sessions`: the numbers of those it has texts of. Units: bytes, Unix milliseconds.
    """

    name: str
    size: int
    texts: int
    words: int
    last: int
    first_at: int
    last_at: int
    sessions: tuple[int, ...]


class Written(msgspec.Struct, array_like=True, frozen=True):
    """A text as it stands in the file of its session. Units: Unix milliseconds."""

    position: int
    at: int
    place: Place


class Catalogue(msgspec.Struct, frozen=True, dict=True):
    """The index of a folder. `numbers` were given to sessions so far.

    `long`: texts too long for any part, which every search reads from their files. `position`:
    every entry up to it is indexed, and no entry before it comes any more; 0 while that is not so.
    `feed` says of which feed the positions are.
    """

    dialect: str
    feed: FeedMark = FeedMark()
    position: int = 0
    numbers: int = 0
    sessions: tuple[Known, ...] = ()
    pieces: tuple[Piece, ...] = ()
    long: tuple[Written, ...] = ()
    format: int = FORMAT
    version: int = VERSION

    @cached_property
    def by_name(self) -> dict[str, Known]:
        """The sessions, by the names of their files."""
        return {known.name: known for known in self.sessions}

    @cached_property
    def by_number(self) -> dict[int, Known]:
        """The sessions, by their numbers."""
        return {known.number: known for known in self.sessions}

    @property
    def texts(self) -> int:
        """How many texts can be found by it."""
        titles = sum(1 for known in self.sessions if known.title)
        return self.text_count + len(self.long) + titles

    @property
    def text_count(self) -> int:
        """How many texts are in its parts."""
        return sum(piece.texts for piece in self.pieces)

    def of(self, streams: Collection[StreamId]) -> set[int]:
        """The numbers of `streams`."""
        return {known.number for known in self.sessions if known.stream in streams}


_decoder = msgspec.msgpack.Decoder(Catalogue)
_encode = msgspec.msgpack.Encoder().encode

_HASH_BYTES = 16


def encode(catalogue: Catalogue) -> bytes:
    """What the file of a catalogue holds: its hash, and then what it says."""
    content = _encode(catalogue)
    return _hash(content) + content


def decode(content: bytes, dialect: str) -> Catalogue | None:
    """The catalogue that `content` is; None where it is none, or not by the rules of today."""
    try:
        found = _decoder.decode(content[_HASH_BYTES:]) if is_whole(content) else None
    except msgspec.MsgspecError:  # of other rules
        return None
    if found is None or (found.format, found.version) != (FORMAT, VERSION):
        return None
    is_here = all(map(_is_name, (*(known.name for known in found.sessions), *_names(found))))
    return found if found.dialect == dialect and is_here else None


def _names(catalogue: Catalogue) -> Iterator[str]:
    return (piece.name for piece in catalogue.pieces)


def _is_name(name: str) -> bool:
    """Whether `name` is that of a file in the folder: no path leads out of it."""
    return "/" not in name and name not in ("", ".", "..")


def is_whole(content: bytes) -> bool:
    """Whether `content` is as it was written, by whatever rules."""
    return _hash(content[_HASH_BYTES:]) == content[:_HASH_BYTES]


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH_BYTES).digest()


def trail_of(path: Path, end: int) -> bytes:
    """The hash of what stands before `end` in the file."""
    with open_to_read(path, buffering=0) as file:
        begin = max(0, end - _TRAIL_BYTES)
        file.seek(begin)
        return hashlib.blake2b(file.read(end - begin), digest_size=8).digest()


def place_of_row(row: Row) -> tuple[int, int, int]:
    """What tells the line of a row from that of another."""
    return row.offset, row.size, row.part
