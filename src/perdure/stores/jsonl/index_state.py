"""State of the index of a session file: the stream's state, and the location of every entry."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure.codecs.protocol import Codec, Said
from perdure.codecs.shared_keys import with_meta
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, entry_id, entry_place
from perdure.session.info import StreamHeader, info_of
from perdure.session.kinds import TreeBody
from perdure.session.messages import Message
from perdure.session.notes import LeafMoved
from perdure.stores.chain import commit_hash, genesis_hash
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.lines import Envelope
from perdure.stores.jsonl.rows import Key, Row
from perdure.stores.verification import StoredCommit


class Line(NamedTuple):
    """A line of a session file, and its location. Units: bytes."""

    offset: int
    content: bytes
    envelope: Envelope

    @property
    def end(self) -> int:
        """The end of the line, without the LF."""
        return self.offset + len(self.content)


@dataclass(slots=True)
class Run:
    """The lines that another program wrote since perdure's last batch.

    A run contains the hashes of the other program's lines, and the seq of the first line's entry.
    """

    first: int = 0
    at: int = 0
    hashed: list[bytes] = field(default_factory=list[bytes])
    lines: list[Line] = field(default_factory=list[Line])


class IndexState:
    """The data in the index of one session file.

    `media` maps a content in another program's line to the entry that contains the content.

    `has_own_header` means that perdure created the file, and that perdure's own header line was
    read.
    """

    def __init__(self, path: Path, codec: Codec) -> None:
        self.path = path
        self.codec = codec
        self.media: dict[str, int] = {}
        self._reset()

    def _reset(self) -> None:
        self.header = StreamHeader(entry_place("none/0")[0], 0)
        self.is_session = self.has_own_header = False
        self.version = self.copies = self.records = 0
        self.rows: list[Row] = []
        self.ids: dict[str, int] = {}
        self.aliases: list[tuple[str, EntryId]] = []
        self.keys: dict[str, Key] = {}
        self.commits: list[StoredCommit] = []
        self.faults: list[tuple[int | None, str]] = []
        self.unreadable: list[tuple[int, int]] = []
        self.cut_off: list[tuple[int, int]] = []
        self.leaf: int | None = None
        self.open_turn: int | None = None
        self.info = info_of(self.header)
        self.payload = 0
        self.end = self.size = 0
        self.is_line_ended = True
        self.run = Run()
        self._stamp: Stamp | None = None
        self._scanned = 0
        self._trail = b""
        self._pending: list[Line] = []
        self._hash = b""

    def _begin(self, header: StreamHeader) -> None:
        self.header = header
        self._hash = genesis_hash(header)
        self.info = info_of(header)

    # -- state of the stream

    @property
    def head(self) -> int:
        """The seq of the last entry."""
        return len(self.rows) - 1

    @property
    def hash(self) -> bytes:
        """The last hash of the chain.

        The lines that another program wrote since the last batch count as one commit.
        """
        run = self.run
        return commit_hash(self._hash, run.at, 0, run.hashed) if run.hashed else self._hash

    @property
    def torn_bytes(self) -> int:
        """Number of uncommitted bytes at the end of the file."""
        return self.size - self.end

    def note_cut_off(self, begin: int, end: int) -> None:
        """Record that the bytes from `begin` to before `end`, if any, were never committed."""
        if begin < end:
            self.cut_off.append((begin, end - begin))
        self.unreadable = [each for each in self.unreadable if each[0] < begin]

    def note_uncommitted(self, line: Line) -> None:
        """Record perdure's lines without a batch that come before another program's `line`."""
        if self._pending and self.end <= self._pending[-1].offset < line.offset:
            self.note_cut_off(self.end, line.offset)

    def all_commits(self) -> list[StoredCommit]:
        """Return the commits in order; another program's lines since the last batch come last."""
        run = self.run
        if not run.hashed:
            return self.commits
        last = StoredCommit(run.first, len(run.hashed), run.at, 0, self.hash)
        return [*self.commits, last]

    def id_of(self, seq: int | None) -> EntryId | None:
        """Return the id of the entry with the seq `seq`."""
        return None if seq is None else entry_id(self.header.id, seq)

    def anchor_of(self, record: str | None) -> int | None:
        """Return the parent (a seq) of an entry whose record has the parent `record`."""
        seq = None if record is None else self.ids.get(record)
        return None if seq is None else self.rows[seq].anchor


def entry_at(log: IndexState, seq: int, body: bytes) -> Entry:
    """Return the entry with the seq `seq` and the body `body`."""
    row = log.rows[seq]
    return Entry(
        stream=log.header.id,
        seq=seq,
        lane=row.lane,
        parent_id=log.id_of(row.parent),
        about=row.about,
        at=row.at,
        kind=row.kind,
        v=row.v,
        body=body,
    )


def tool_digest(line: bytes, part: int) -> bytes:
    """Return the digest of an entry in another program's line; the digest is the line's hash."""
    return hashlib.blake2b(line, digest_size=32, salt=bytes([part])).digest()


def foreign_entry(log: IndexState, said: Said, parent: int | None, part: int) -> NewEntry:
    """Return the entry that another program's record contains, with its references resolved."""
    if part == 1:
        return new_side(LeafMoved(log.id_of(parent)))
    body = said.body
    found = {
        name: log.id_of(_resolve_reference(log, name, id, parent)) for name, id in said.references
    }
    body = msgspec.structs.replace(body, **found) if found else body
    new = new_tree(body) if isinstance(body, Message | TreeBody) else new_side(body)
    return msgspec.structs.replace(new, body=with_meta(new.body, said.meta))


def _resolve_reference(log: IndexState, name: str, record: str, parent: int | None) -> int | None:
    """Resolve the reference in the field `name` to the seq of a tree entry; None if there is none.

    `record` is the id of the referenced record. A reference to a side record means a tree entry.
    In the field "target", it means the tree entry before the side record. In any other field, it
    means the child of that tree entry on the branch to `parent`.
    """
    seq = log.ids.get(record)
    if seq is None or log.rows[seq].lane == "tree":
        return seq
    if name == "target":
        return log.rows[seq].anchor
    anchor, following = log.rows[seq].anchor, None
    while parent is not None and parent != anchor:
        following, parent = parent, log.rows[parent].parent
    return following if parent == anchor else None
