"""Link records to their parents, which can be anywhere in the file.

A record can name a parent that comes later in the file, is missing, or is part of a cycle. Each
record is placed (added to the tree) once, after its parent if the record has one. While a record
waits for its parent, only its place in the file is stored (``SourceDraft.release_line``); the
record is read again when its parent is placed. `Linker.place_next` places the waiting records one
at a time, so that the caller can process items between two of these records. This module does not
depend on a file format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import cast

from perdure.codecs.fields import Fields, object_in
from perdure.codecs.lines import Line
from perdure.codecs.media import Media
from perdure.codecs.protocol import Said
from perdure.interop.formats.items import Item
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message
from perdure.session.notes import ImportedRecord, Label, LeafMoved, SideBody

Place = Callable[[Record, int | None], int | None]
"""Adds a record as a child of the given item; returns the parent item for the record's children."""


Referred = Callable[[str, str], int | None]

MessageFields = tuple[Message | CustomMessage | None, int | None, Fields | None]
"""Body, time and metadata of a message; the body is None if it cannot be read."""

ReadMessage = Callable[[Fields, Fields, Media], MessageFields]
"""Converts a message.

The arguments are the record, the record's message, and the media.
"""


class Leaf:
    """The item of the last line of the conversation (the leaf).

    Lines can be placed in any order.
    """

    def __init__(self) -> None:
        self.node: int | None = None
        self._number = 0

    def follow(self, record: Record, node: int | None) -> None:
        """Make `node` (the item of `record`) the leaf.

        Do nothing if a later line was already placed.
        """
        self.follow_line(record.line.number, node)

    def follow_line(self, number: int, node: int | None) -> None:
        """Make `node` (the item of line `number`) the leaf.

        Do nothing if a later line was already placed.
        """
        if number >= self._number:
            self.node, self._number = node, number


class Linker:
    """Adds records to the tree below their parents.

    If every parent comes before its children in the file, the records are added in file order.
    """

    def __init__(self, draft: SourceDraft, place: Place) -> None:
        self.nodes: dict[str, int | None] = {}
        self.links = 0
        self.has_gap = False  # unreadable lines came before the next record
        self._draft = draft
        self._place = place
        self._waiting: dict[str, list[Record]] = {}
        self._free: list[tuple[Record, int | None]] = []
        self._orphans: Iterator[Record] = iter(())
        self._is_closed = False

    def is_plain(self, own: str, parent: object) -> bool:
        """Return whether the id `own` is new, `parent` was placed, and no child waits for `own`."""
        return (
            own not in self.nodes
            and own not in self._waiting
            and (parent is None or (type(parent) is str and parent in self.nodes))
        )

    def below(self, parent: str | None) -> int | None:
        """Return the item of the record whose id is `parent`; None for a root."""
        if parent is None:
            return None
        self.links += 1
        return self.nodes[parent]

    def add_message(
        self, fields: Fields, parent_key: str, place: tuple[int, int, int], read: ReadMessage
    ) -> int | None:
        """Add the record `fields` if it is a message whose parent was read before.

        Shape: `place` is the number, offset and length of the record's line. Returns the item, or
        None if the record was not added.
        """
        own, parent = fields.get("id"), fields.get(parent_key)
        message = object_in(fields, "message") if fields.get("type") == "message" else None
        if message is None or type(own) is not str or not own or not self.is_plain(own, parent):
            return None
        body, at, meta = read(fields, message, self._draft.media)
        if body is None:
            return None
        below = self.below(cast("str | None", parent))
        item = Item(body, *place, 0, below, None, at, own, None, None, meta)
        node = self.nodes[own] = self._draft.put(item)
        self.has_gap = False
        return node

    def link(self, record: Record, leaf: int | None) -> None:
        """Place `record` as `add` does. A record without ids becomes a child of `leaf`.

        If unreadable lines came before the record and its parent is missing, `leaf` becomes the
        parent.
        """
        if self.has_gap:
            record.fallback = leaf
        if record.id is None and record.parent is None:
            self.add_below(record, leaf)
        else:
            self.add(record)
        self.has_gap = self.has_gap and not record.is_placed

    def link_broken(self, line: Line, ids: re.Match[bytes] | None, leaf: int | None) -> None:
        """Link the unreadable `line` by its id and its parent's id, if these are readable."""
        if ids is None:
            self.has_gap = True
            return
        own, parent = (None if name is None else name.decode() for name in ids.groups())
        self.link(Record(line, {}, own, parent), leaf)

    def add(self, record: Record) -> None:
        """Place `record`, now or as soon as its parent is placed."""
        if record.parent is None:
            self.add_below(record, None)
        elif record.parent in self.nodes:
            self.links += 1
            self.add_below(record, self.nodes[record.parent])
        else:
            self._draft.release_line(record)
            self._waiting.setdefault(record.parent, []).append(record)

    def add_below(self, record: Record, node: int | None) -> None:
        """Place `record` below the item `node`.

        After this call, the records that wait for `record` can be placed.
        """
        record.is_placed = True
        own = self._place(record, node)
        if record.id is None:
            return
        if record.id in self.nodes:
            self._draft.warn(
                "same id",
                f"line {record.line.number}: an earlier line has its id {record.id!r} too; both "
                "are kept, and what names that id from here on means this one",
            )
        self.nodes[record.id] = own
        if record.id in self._waiting:  # rare: records mostly follow their parents
            waited = self._waiting.pop(record.id)
            self.links += len(waited)
            self._free += [(each, own) for each in reversed(waited) if not each.is_placed]

    def place_next(self) -> bool:
        """Place a waiting record whose parent was placed; return False if no such record waits.

        After `close`, records whose parents are missing or form a cycle are placed too.
        """
        while self._free:
            record, node = self._free.pop()
            if not record.is_placed:
                self._place_waiting(record, node)
                return True
        if not self._is_closed:  # checked after every line
            return False
        orphan = next((each for each in self._orphans if not each.is_placed), None)
        if orphan is None:
            return False
        where = "starts a branch" if orphan.fallback is None else "hangs on the entry before it"
        self._draft.warn(
            "no parent",
            f"line {orphan.line.number}: its parent {orphan.parent!r} is not in the file, "
            f"or comes after it in a circle; it {where}",
        )
        self._place_waiting(orphan, orphan.fallback)
        return True

    def item(
        self, record: Record, said: Said, parent: int | None, referred: Referred
    ) -> int | None:
        """Add an item of `record` with the content `said`.

        Return the item that becomes the parent of the record's children. `referred` returns the
        item to which a field of the body refers. The arguments of `referred` are the field's name
        and the id in the field.
        """
        draft, body = self._draft, said.body
        if said.malformed is not None:
            draft.report_malformed(record.line, said.malformed)
        if said.unknown is not None:
            draft.warn("unknown", f"line {record.line.number}: {said.unknown}")
        if not isinstance(body, SideBody):
            references = {name: referred(name, id) for name, id in said.references}
            return draft.add(record, body, parent, references, meta=said.meta)
        match body:
            case Label():
                draft.add(record, body, self._label_target(record, said.about))
            case LeafMoved():
                draft.add(record, body, parent, {"target": parent})
            case ImportedRecord():
                draft.add(record, body, parent)
            case _:
                draft.add(record, body, None)
        return parent

    def _label_target(self, record: Record, target: str | None) -> int | None:
        node = self.nodes.get(target or "")
        if node is None or self._draft.items[node].alias != target:
            text = f"line {record.line.number}: its label is of no entry here"
            self._draft.warn("label", text)
            return None
        return node

    def _place_waiting(self, record: Record, node: int | None) -> None:
        self._draft.restore(record)
        self.add_below(record, node)
        self._draft.release_line(record)  # it may still be waiting

    def close(self) -> None:
        """Let `place_next` place the records whose parents are missing or form a cycle."""
        orphans = (record for waiting in self._waiting.values() for record in waiting)
        self._is_closed = True
        self._orphans = iter(sorted(orphans, key=lambda record: record.line.number))
