"""Index a session's file: read it once, then read only the added lines.

A `Log` contains no bodies: the module ``contents`` reads them from the file. The rules of reading a
file:

- A line ends at an LF, or at the end of the file. A line that is not a record is ignored.
- Lines of perdure become entries as soon as the file contains the line with their `Batch`. Lines of
  perdure that have no batch were never committed.
- A line that another program wrote becomes an entry at once, at its place in the file. If another
  program appends a line after perdure has read the file and before perdure appends its batch, the
  entry of this line comes after the batch.
- An unreadable entry of perdure counts as lost, and its seq is not used again.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from perdure.codecs.fields import number_in
from perdure.codecs.ids import record_id
from perdure.codecs.media import Media
from perdure.codecs.protocol import Said
from perdure.errors import StoreTooNew, StoreUnavailable
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, entry_id, entry_place
from perdure.session.info import SessionInfo, StreamHeader, info_after
from perdure.session.kinds import TreeBody
from perdure.session.messages import Message
from perdure.session.notes import LeafMoved
from perdure.stores.chain import header_line
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.index_state import (
    IndexState,
    Line,
    Run,
    entry_at,
    foreign_entry,
    tool_digest,
)
from perdure.stores.jsonl.lines import (
    FORMAT,
    Batch,
    Ours,
    batch_info,
    envelope_of,
    fields_of,
)
from perdure.stores.jsonl.rows import Key, Row, header_of, is_sound, lost_row, own_header_of, place
from perdure.stores.regular_files import open_to_read
from perdure.stores.verification import StoredCommit

_TRAIL_BYTES = 256
"""Number of bytes before the read position that are read again, to detect a rewritten file."""


TAIL_BYTES = 2**18
"""Number of bytes at the end of a file that are read for its newest entries."""


class Log(IndexState):
    """The index of one session file. Call `refresh` before using a log."""

    # -- reading the file

    def refresh(self) -> bool:
        """Read the bytes added to the file; False if the file is missing or contains no session.

        Raises: StoreTooNew if a newer perdure wrote the file; StoreUnavailable.
        """
        try:
            with open_to_read(self.path) as file:
                stamp = Stamp.of(os.fstat(file.fileno()))
                if self._stamp != stamp:
                    if self._is_another(stamp):
                        self._reset()
                    self._read(file)
                    self._stamp = stamp if stamp.size == self.size else None
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreUnavailable(str(self.path), str(error)) from error
        return self.is_session

    def _is_another(self, stamp: Stamp) -> bool:
        """Return whether the file was rewritten, and not only extended."""
        known = self._stamp
        if known is None:
            return stamp.size < self.size
        return known.inode != stamp.inode or stamp.size <= known.size

    def _read(self, file: BinaryIO) -> None:
        file.seek(self._scanned - len(self._trail))
        if file.read(len(self._trail)) != self._trail:
            self._reset()
            file.seek(0)
        self._take_lines(file)
        file.seek(max(0, self._scanned - _TRAIL_BYTES))
        self._trail = file.read(self._scanned - file.tell())

    def _take_lines(self, file: BinaryIO) -> None:
        self.size = self._scanned
        for whole in file:
            content = whole.rstrip(b"\r\n")
            envelope = envelope_of(content) if content.strip() else None
            self.is_line_ended = whole.endswith(b"\n")
            self.size += len(whole)
            if envelope is None and not self.is_line_ended:
                return  # still being written, or cut off: read again when the file has grown
            offset, self._scanned = self._scanned, self.size
            if envelope is not None:
                if not self._take(Line(offset, content, envelope)):
                    return
                if self.end == offset + len(content):
                    self.end = self.size
            elif content.strip():
                self.unreadable.append((offset, len(content)))
            elif self.end == offset:
                self.end = self.size

    def _take(self, line: Line) -> bool:
        """Add the record in `line` to the index; return False if the file is not a session file."""
        ours = line.envelope.ours
        if not self.is_session:
            return self._take_header(line)
        if not (self.rows or self._pending or self.commits):
            self._take_own_header(ours)
        if ours is None or ours.of != self.header.id:
            self.note_uncommitted(line)
            self._take_foreign(line)
            return True
        self._pending.append(line)
        if ours.batch is not None:
            self._take_batch(line, ours.batch)
        return True

    def _take_header(self, line: Line) -> bool:
        header = header_of(line.envelope, fields := fields_of(line.content) or {}, self.codec)
        if header is None:
            return False
        self.is_session = True
        self.version = int(number_in(fields, "version") or 1)
        self.end = line.end
        self._begin(header)
        return True

    def _take_own_header(self, ours: Ours | None) -> None:
        header = own_header_of(ours, self.header.id)
        if ours is None or header is None:
            return
        if ours.format > FORMAT:
            raise StoreTooNew(str(self.path), ours.format, FORMAT)
        self.has_own_header, self.copies = True, ours.copies
        self._begin(header)

    # -- perdure's own lines

    def _take_batch(self, line: Line, batch: Batch) -> None:
        start = line.offset - batch.size
        if not is_sound(batch, len(self._pending)):
            return  # its line is damaged: the next batch reports the missing lines
        if batch.first < self.run.first:
            self.faults.append((batch.first, "lines of ours stand in the file twice"))
            self._pending = []
            return
        if start == 0 and not self.has_own_header:
            self.faults.append((None, "the line of its header is damaged"))
        late = self._taken_back(batch.first)
        if self.run.hashed:
            chain = bytes.fromhex(batch.foreign) if batch.foreign else self.hash
            run = self.run
            self.commits.append(StoredCommit(run.first, len(run.hashed), run.at, 0, chain))
        held = _by_seq(self._pending)
        for seq in range(len(self.rows), batch.first):
            self._take_ours(seq, held.get(seq, []))
            self.faults.append((seq, "the line that ends its commit is damaged"))
        for seq in range(batch.first, batch.first + batch.count):
            self._take_ours(seq, [each for each in held.get(seq, []) if each[0].offset >= start])
        self._settle(batch, line)
        self.note_cut_off(start - batch.torn, start)
        for each in late:
            self._take_foreign(each)

    def _taken_back(self, first: int) -> list[Line]:
        """Remove lines of another program from seq `first` on; return them to be added later."""
        run = self.run
        count = len(self.rows) - first
        if count <= 0:
            return []
        late = run.lines[-count:]
        del self.rows[first:], run.hashed[-count:], run.lines[-count:]
        run.at = self.rows[-1].at if run.hashed else 0
        self.aliases = [pair for pair in self.aliases if entry_place(pair[1])[1] < first]
        return [line for line, after in zip(late, [*late[1:], None], strict=True) if line != after]

    def _take_ours(self, seq: int, lines: list[tuple[Line, Ours]]) -> None:
        ours = lines[-1][1] if lines else None
        if ours is None or not _is_whole([each for _, each in lines], seq):
            self.faults.append((seq, "its line is damaged"))
            self.rows.append(lost_row(self.rows[-1].anchor if self.rows else None))
            return
        first, last = lines[0][0], lines[-1][0]
        at = self.codec.time_of(last.envelope.timestamp) if ours.at is None else ours.at
        row = Row(
            first.offset,
            last.end - first.offset,
            ours.kind,
            ours.v,
            "side" if ours.side else "tree",
            at or 0,
            is_ours=True,
            about=None if ours.about is None else EntryId(ours.about),
            record=last.envelope.id,
        )
        parent = self.anchor_of(first.envelope.parent) if ours.side else self._near(ours.parent)
        place(row, self.rows, parent)
        self.ids |= {line.envelope.id: seq for line, _ in lines if line.envelope.id is not None}
        if ours.alias is not None:
            self.aliases.append((ours.alias, entry_id(self.header.id, seq)))

    def take_acknowledged(self, head: int) -> None:
        """Add the remaining entries up to `head`, whose batch is damaged or cut off.

        Call this method only if the feed shows that the entries up to `head` are committed.
        """
        if head > self.head:
            held = _by_seq(self._pending)
            for seq in range(len(self.rows), head + 1):
                self._take_ours(seq, held.get(seq, []))
            self._pending, self.end = [], self.size

    def _near(self, seq: int | None) -> int | None:
        """Return `seq` if its entry is readable, otherwise the seq of the previous tree entry."""
        return None if seq is None else self.rows[seq].anchor

    def _settle(self, batch: Batch, line: Line) -> None:
        """Set the stream's state to the state in `batch`."""
        chain = bytes.fromhex(batch.hash)
        if batch.count:
            stored = StoredCommit(batch.first, batch.count, batch.at, batch.epoch, chain)
            self.commits.append(stored)
        elif line.envelope.id is not None and self.leaf is not None:
            self.ids[line.envelope.id] = self.leaf  # a tool may continue from it
        if batch.key is not None:
            self.keys[batch.key] = Key(
                batch.asked or b"", batch.first, batch.first + batch.count, batch.at
            )
        self._hash = chain
        self.run = Run(first=len(self.rows))
        self._pending = []
        self.leaf, self.open_turn = self._near(batch.leaf), batch.turn
        self.payload = batch.payload
        self.info = batch_info(self.header, batch)
        self.end = line.end

    # -- lines of the tool's own

    def _take_foreign(self, line: Line) -> None:
        fields = fields_of(line.content)
        if fields is None:
            return
        envelope = line.envelope
        said = self.codec.said(fields, Media())
        self.records += 1
        parent = self.anchor_of(envelope.parent) if envelope.id is not None else self.leaf
        row = self._add(line, said, parent, 0)
        seq = len(self.rows) - 1
        if self.version < 2:
            self.ids[record_id(self.records)] = seq
        if envelope.id is not None:
            self.ids[envelope.id] = seq
            self.aliases.append((envelope.id, entry_id(self.header.id, seq)))
        if row.lane == "side" and row.kind != LeafMoved.kind and row.anchor != self.leaf:
            # The tools continue from their last record, whatever it is.
            self._add(line, Said(LeafMoved(None)), parent, 1)
        self.end = max(self.end, line.end)

    def _add(self, line: Line, said: Said, parent: int | None, part: int) -> Row:
        seq, envelope = len(self.rows), line.envelope
        is_tree = isinstance(said.body, Message | TreeBody)
        at = self.codec.time_of(envelope.timestamp)
        row = Row(
            line.offset,
            len(line.content),
            "",
            1,
            "tree" if is_tree else "side",
            self.info.created_at if at is None else at,
            is_ours=False,
            part=part,
            about=self.id_of(self.anchor_of(said.about)),
            record=envelope.id,
        )
        new = foreign_entry(self, said, parent, part)
        row.kind, row.v = new.kind, new.v
        place(row, self.rows, parent)
        entry = entry_at(self, seq, new.body)
        self._fold(entry)
        self.run.hashed.append(header_line(entry, tool_digest(line.content, part)))
        self.run.lines.append(line)
        self.run.at = entry.at
        return row

    def _fold(self, entry: Entry) -> None:
        self.info: SessionInfo = info_after(self.info, (entry,))
        self.payload += len(entry.body)
        if entry.lane == "tree":
            self.leaf = entry.seq
        elif entry.kind == LeafMoved.kind and isinstance(body := body_of(entry), LeafMoved):
            self.leaf = None if body.target is None else entry_place(body.target)[1]


def _by_seq(lines: list[Line]) -> dict[int, list[tuple[Line, Ours]]]:
    """Return the lines of each entry, in order."""
    found: dict[int, list[tuple[Line, Ours]]] = {}
    for line in lines:
        if line.envelope.ours is not None:
            found.setdefault(line.envelope.ours.seq, []).append((line, line.envelope.ours))
    return found


def _is_whole(lines: list[Ours], seq: int) -> bool:
    """Whether `lines` are all the lines of the entry `seq`, and its parent is an earlier entry."""
    *before, last = lines
    is_below = last.parent is None or 0 <= last.parent < seq
    return is_below and not last.more and all(each.more for each in before)


class Tail(Log):
    """The end of a session file with its newest entries only; entries before `base` are unknown.

    A `Tail` reads only commits of perdure, because another program's lines can reference earlier
    records.
    """

    base = 0

    def read(self, header: StreamHeader) -> bool:
        """Read the end of the session's file; return False if earlier parts are needed, too."""
        self.header, self.is_session = header, True
        lines = self._end()
        for number, line in enumerate(lines):
            ours = None if line is None else line.envelope.ours
            if ours is not None and ours.of == header.id and ours.batch is not None:
                self.base = ours.batch.first + ours.batch.count
                self.rows = [lost_row(None)] * self.base
                self.run = Run(first=self.base)
                return all(map(self._is_taken, lines[number + 1 :])) and not self.faults
        return False

    def go_on(self, header: StreamHeader, end: int, base: int, leaf: int | None) -> bool:
        """Read the file after byte `end`.

        The part of the file before `end` has `base` entries and the leaf `leaf`. Returns False if
        the whole file must be read.
        """
        self.header, self.is_session = header, True
        self.base, self.leaf, self.end = base, leaf, end
        self.rows = [lost_row(None)] * base
        self.run = Run(first=base)
        with open_to_read(self.path) as file:
            file.seek(end)
            if file.read(1) != b"\n":  # `end` may be before or after the LF
                file.seek(end)
            lines = self._lines(file, file.tell())
        return all(map(self._is_taken, lines)) and not self.faults

    def _end(self) -> list[Line | None]:
        """Return the last lines of the file, with None for each line that is not a record."""
        with open_to_read(self.path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            offset = file.tell() + len(file.readline())
            return self._lines(file, offset)

    def _lines(self, file: BinaryIO, offset: int) -> list[Line | None]:
        lines: list[Line | None] = []
        for whole in file:
            content = whole.rstrip(b"\r\n")
            envelope = envelope_of(content)
            lines.append(None if envelope is None else Line(offset, content, envelope))
            offset += len(whole)
        return lines

    def _is_taken(self, line: Line | None) -> bool:
        ours = None if line is None else line.envelope.ours
        is_ours = ours is not None and ours.of == self.header.id
        return line is not None and is_ours and self._take(line)

    def _near(self, seq: int | None) -> int | None:
        return seq if seq is not None and seq < self.base else super()._near(seq)
