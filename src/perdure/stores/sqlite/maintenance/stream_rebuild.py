"""Rebuild streams from salvaged rows: map numbers back to names as far as possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.errors import CorruptLog
from perdure.session.codec import BODIES
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_id, stream_id
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE
from perdure.stores.access.sqlite_connection import Row
from perdure.stores.chain import body_digest
from perdure.stores.maintenance.repair import SalvagedStream
from perdure.stores.protocol import EMPTY, Problem
from perdure.stores.sqlite.maintenance.salvage import Salvage
from perdure.stores.sqlite.payload.contents import PackedContent, content_in
from perdure.stores.verification import StoredCommit, StoredEntry

FIRST_MET_KIND = 34
"""The lowest number of a kind that no migration defines."""

MOST_LOST = 10_000
"""Maximum number of entries assumed lost at the end of a commit."""

_header = msgspec.json.Decoder(StreamHeader)


class SalvagedDatabase(msgspec.Struct, frozen=True):
    """The salvaged data of a database, by namespace."""

    streams: Mapping[str, Sequence[SalvagedStream]]
    contents: Mapping[str, Sequence[PackedContent]]
    losses: tuple[Problem, ...]


def remains_in(found: Salvage, kinds: Mapping[int, str]) -> SalvagedDatabase:
    """Rebuild streams from the rows `found`; `kinds` names the kinds that every store has."""
    return _StreamRebuild(found, kinds).rebuild()


class _StreamRebuild:
    """Rebuilds streams from rows."""

    def __init__(self, found: Salvage, kinds: Mapping[int, str]) -> None:
        self._found = found
        self._losses: list[Problem] = []
        self._kinds = dict(kinds)
        self._namespaces: dict[int, str] = {}
        self._take_names()
        self._streams: dict[int, Row] = {}
        for row in sorted(found.streams, key=lambda row: (row[7], row[11])):
            self._streams[row[0]] = row  # of two rows, the one with the higher head wins
        self._births = {row[0]: row for row in found.births}
        # Index rows of sessions look like aliases; they name the namespaces of the sessions.
        self._listed = {
            row[2]: row[0]
            for row in found.aliases
            if (header := self._header_of(row[2])) is not None and header.id == row[1]
        }
        self._entries: dict[int, dict[int, Row]] = defaultdict(dict)
        self._places: dict[int, tuple[int, int]] = {}
        self._take_entries()

    def rebuild(self) -> SalvagedDatabase:
        streams: dict[str, list[SalvagedStream]] = defaultdict(list)
        commits, aliases = self._commits(), self._aliases()
        for number in sorted({*self._streams, *self._births, *self._entries}):
            remains = self._remains(number, commits[number], aliases[number])
            streams[self._namespace_of(number)].append(remains)
        contents = self._contents()
        return SalvagedDatabase(streams, contents, tuple(self._losses))

    # -- names

    def _take_names(self) -> None:
        """Decide which salvaged names are kinds of entries, and which are namespaces.

        The row of a kind looks like the row of a namespace. Kinds with a number below
        `FIRST_MET_KIND` have the same number in every store.
        """
        for number, name in self._found.names:
            is_fixed = self._kinds.get(number) == name
            if name in BODIES and number >= FIRST_MET_KIND:
                self._kinds[number] = name
            elif not is_fixed:
                self._namespaces.setdefault(number, name)
                if number >= FIRST_MET_KIND:
                    self._kinds.setdefault(number, name)

    def _namespace_of(self, stream: int) -> str:
        row = self._streams.get(stream)
        number = self._listed.get(stream) if row is None else row[1]
        if number is None and len(self._namespaces) == 1:
            return next(iter(self._namespaces.values()))
        if number in self._namespaces:
            return self._namespaces[number]
        name = "recovered" if number is None else f"recovered-{number}"
        text = f"the name of its namespace is gone; it is in the namespace {name}"
        self._losses.append(Problem(self._id_of(stream), None, text))
        return name

    def _id_of(self, stream: int) -> StreamId:
        row = self._streams.get(stream)
        if row is not None:
            return StreamId(row[2])
        header = self._header_of(stream)
        return StreamId(f"recovered-{stream}") if header is None else header.id

    def _header_of(self, stream: int) -> StreamHeader | None:
        row = self._births.get(stream)
        try:
            header = None if row is None else _header.decode(row[1])
            return header if header is None or stream_id(header.id) else None
        except (msgspec.MsgspecError, ValueError):
            return None

    def _listed_header(self, stream: StreamId, row: Row | None) -> StreamHeader | None:
        """Return a header with those fields of a lost header that the session list contains."""
        if row is None:
            return None
        facts = {
            "id": row[2],
            "created_at": row[6],
            "kind": row[3],
            "origin": row[4],
            "cwd": row[18],
            "title": row[16],
            "parent": row[5],
        }
        try:
            header = msgspec.convert(facts, StreamHeader)
        except msgspec.ValidationError:
            return None
        text = "its header is gone; what the list of sessions kept of it stands for it"
        self._losses.append(Problem(stream, None, text))
        return header

    # -- entries

    def _take_entries(self) -> None:
        for row in self._found.entries:
            own = self._entries[row[1]]
            if row[2] not in own or not _is_sound(own[row[2]]):
                own[row[2]] = row
            self._places[row[0]] = (row[1], row[2])

    def _remains(
        self, number: int, commits: list[StoredCommit], aliases: list[tuple[str, int]]
    ) -> SalvagedStream:
        stream, header = self._id_of(number), self._header_of(number)
        row, birth = self._streams.get(number), self._births.get(number)
        if header is None or header.id != stream:
            header, birth = self._listed_header(stream, row), None
        return SalvagedStream(
            id=stream,
            header=header,
            genesis=None if birth is None else birth[2],
            head=EMPTY if row is None else row[7],
            tree=() if row is None else self._entries_at(row[8], row[9]),
            epoch=0 if row is None else row[11],
            is_erased=row is not None and row[19] == "erased",
            rows={
                seq: self._stored_entry(stream, own) for seq, own in self._entries[number].items()
            },
            commits=tuple(commits),
            aliases=tuple(aliases),
        )

    def _entries_at(self, *positions: int | None) -> tuple[EntryId, ...]:
        places = [self._places.get(n) for n in positions if n is not None]
        return tuple(entry_id(self._id_of(place[0]), place[1]) for place in places if place)

    def _stored_entry(self, stream: StreamId, row: Row) -> StoredEntry:
        _, _, seq, kind, v, at, run, ref, _, _, _, salt, digest, body = row[:14]
        target = EntryId(ref) if isinstance(ref, str) else None
        if isinstance(ref, int):
            target = entry_id(stream, ref)
        name = self._kinds.get(kind, OPAQUE)
        if name == OPAQUE and kind not in self._kinds:
            self._losses.append(Problem(stream, seq, "the name of its kind is gone"))
        if run is None:
            entry = Entry(stream, seq, "side", None, target, at, name, v, body)
        else:
            entry = Entry(stream, seq, "tree", target, None, at, name, v, body)
        return StoredEntry(entry, salt, digest)

    def _commits(self) -> dict[int, list[StoredCommit]]:
        """Return the commits by stream; each entry gives its stream and the start of its commit."""
        found: dict[int, dict[int, StoredCommit]] = defaultdict(dict)
        top = max(self._places, default=0)
        for first, count, at, epoch, chain in (row[:5] for row in self._found.commits):
            for n in range(first, first + min(count, 10_000)):
                place = self._places.get(n)
                if place is not None:
                    seq = place[1] - (n - first)
                    found[place[0]][seq] = StoredCommit(seq, count, at, epoch, chain)
                    for lost in range(min(count, top - first + MOST_LOST)):
                        self._places.setdefault(first + lost, (place[0], seq + lost))
                    break
        return defaultdict(list, {number: list(own.values()) for number, own in found.items()})

    def _aliases(self) -> dict[int, list[tuple[str, int]]]:
        found: dict[int, dict[str, int]] = defaultdict(dict)
        for number, name, seq in self._found.aliases:
            row = self._streams.get(seq)
            header = self._header_of(seq)
            named = row[2] if row is not None else header.id if header is not None else None
            is_index_of_streams = named == name
            if not is_index_of_streams and seq in self._entries.get(number, {}):
                found[number][name] = seq
        return defaultdict(list, {number: list(own.items()) for number, own in found.items()})

    # -- contents

    def _contents(self) -> dict[str, list[PackedContent]]:
        kept: dict[str, dict[str, PackedContent]] = defaultdict(dict)
        damaged: set[str] = set()
        for row in self._found.contents:
            _, namespace, digest, size, content, packing = row[:6]
            packed = PackedContent(digest, size, packing or 0, content)
            try:
                content_in(packed)
            except CorruptLog:
                damaged.add(digest)
            else:
                name = self._namespaces.get(namespace, f"recovered-{namespace}")
                kept[name][digest] = packed
        whole = {digest for own in kept.values() for digest in own}
        for digest in sorted(damaged - whole):
            self._losses.append(Problem(None, None, f"the content {digest} is damaged"))
        return {name: list(own.values()) for name, own in kept.items()}


def _is_sound(row: Row) -> bool:
    salt, digest, body = row[11:14]
    return salt is not None and body_digest(body, salt) == digest


def entries_of(left: SalvagedDatabase) -> Iterator[StoredEntry]:
    """Yield every salvaged entry."""
    for own in left.streams.values():
        for remains in own:
            yield from remains.rows.values()
