"""Match the items of a source with the entries of a session.

For each entry, only its id, its place in the file and a digest stay in memory, so the session can
be larger than memory. If the source begins with a file version that was imported before, an entry
from that version is matched by its place in the file. An opaque entry (a line that perdure could
not read) has no recorded place in the file. Opaque entries are therefore matched by their bytes.
Entries that come from an older version of a rewritten file, and entries that perdure exported, are
matched by id, or by content and time if they have no id.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from perdure.codecs.ids import written_ids
from perdure.interop.formats.items import Item, body_without_source, without_source
from perdure.interop.formats.sources.outline import Outline, digest_of_opaque
from perdure.session.entries import Entry, Lane
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE
from perdure.session.messages import MESSAGE
from perdure.session.notes import (
    ImportSource,
    LeafMoved,
    SessionInfoChanged,
    SourcePlace,
    source_of,
)
from perdure.stores.protocol import EMPTY
from perdure.stores.session_store import SessionStore

PAGE = 32
"""Number of entries read at a time."""

_USAGE = b'"usage":'
_TITLE = SessionInfoChanged.kind
_SIGNED = (MESSAGE, _TITLE)


class _UsageOnly(msgspec.Struct):
    usage: object = None


_usage_only = msgspec.json.Decoder(_UsageOnly)

Signature = tuple[str, int, bytes]
"""What identifies an entry without an id: its kind, its time and the digest of its content."""


class Traces:
    """Facts about the entries of a session, recorded in log order.

    If the beginning of the source was imported before, `parts` are the sequence numbers of the
    entries that store this beginning. `mover` is the last entry that moved the leaf (the current
    end of the conversation). `is_mover_imported` is True if an import wrote the entry `mover`.
    `with_usage` are the messages with usage; `streams` are the streams of the entries. `opaque`
    maps the digest of each line that perdure could not read to the entries of the line. If
    `has_written_ids` is True, the ids that the entries have in exported pi files are recorded too.
    The session might also have been continued in files of other formats. `others` are the sequence
    numbers of the entries that store files of other formats. Entries from files of other formats
    count as added by perdure itself.
    """

    def __init__(
        self,
        parts: Collection[int] = (),
        *,
        others: Collection[int] = (),
        has_written_ids: bool = False,
    ) -> None:
        self.mover: EntryId | None = None
        self.is_mover_imported = True
        self.is_mover_in_tree = False
        self.with_usage: set[EntryId] = set()
        self.streams: dict[StreamId, None] = {}
        self.written_ids: dict[str, EntryId] = {}
        self._has_written_ids = has_written_ids
        self._parts = parts
        self._others = others
        self._places: dict[tuple[int, int, Lane], EntryId] = {}
        self._ordinals: dict[int, int] = {}
        self.opaque: dict[bytes, list[EntryId]] = {}
        self._remaining: dict[EntryId, None] = {}
        self._said: dict[EntryId, Signature] = {}
        self._own_messages: list[EntryId] = []
        self._titles: set[EntryId] = set()
        self._has_original = False
        self._imported: dict[EntryId, bytes] = {}

    def take(self, entry: Entry) -> None:
        """Record the facts about `entry` that matching needs."""
        self.streams[entry.stream] = None
        if self._has_written_ids:
            self.written_ids.update(written_ids((entry,)))
        self._has_original = self._has_original or entry.kind == ImportSource.kind
        source = self._source_of(entry)
        self._take_mover(entry, is_imported=entry.kind == OPAQUE or source is not None)
        if entry.kind == MESSAGE and _has_usage(entry.body):
            self.with_usage.add(entry.id)
        if source is not None and source.part in self._parts:
            if source.length:  # length 0: the place where an import left the leaf
                ordinal = self._ordinals.get(source.offset, 0)
                self._ordinals[source.offset] = ordinal + 1
                self._places[source.offset, ordinal, entry.lane] = entry.id
            return
        if entry.kind == OPAQUE:
            self.opaque.setdefault(digest_of_opaque(entry.body), []).append(entry.id)
            return
        self._remaining[entry.id] = None
        if source is None and entry.kind == MESSAGE:
            self._own_messages.append(entry.id)
        if source is not None:
            body = without_source(entry.body)
            self._said[entry.id] = (entry.kind, entry.at, _signed_text(entry.kind, body))
            if entry.kind == _TITLE:
                self._titles.add(entry.id)
            elif source.length:
                self._imported[entry.id] = hashlib.sha256(body).digest()

    def _source_of(self, entry: Entry) -> SourcePlace | None:
        """Return the place of `entry` in an imported file of the source's format, if any."""
        source = source_of(entry.body) if entry.kind != OPAQUE else None
        return None if source is not None and source.part in self._others else source

    def _take_mover(self, entry: Entry, *, is_imported: bool) -> None:
        if entry.lane == "tree" or entry.kind == LeafMoved.kind:
            self.mover, self.is_mover_in_tree = entry.id, entry.lane == "tree"
            self.is_mover_imported = is_imported

    def find_known(self, items: Sequence[Item], ids: Mapping[str, EntryId]) -> dict[int, EntryId]:
        """Map the position of each item that the session already contains to the item's entry.

        Matches that need the body of the item are left out. `ids` maps foreign ids to entries.
        """
        found: dict[int, EntryId] = {}
        waiting = {digest: iter(entries) for digest, entries in self.opaque.items()}
        for position, item in enumerate(items):
            entry = self._places.get((item.offset, item.ordinal, item.lane))
            if entry is None and waiting and item.kind == OPAQUE:
                entry = next(waiting.get(_opaque_digest(items, position, item), iter(())), None)
            if entry is None and item.ordinal == 0 and item.alias is not None:
                entry = ids.get(item.alias)
                entry = entry if entry in self._remaining else None
            if entry is not None:
                found[position] = entry
        return found

    def said_by(
        self, items: Iterable[tuple[int, Item]], known: Mapping[int, EntryId]
    ) -> Iterator[tuple[int, EntryId]]:
        """Yield the `items` whose content and time match an entry; the items have their bodies.

        Shape: yields the position of an item and its entry, in the order of the items. Each entry
        is yielded at most once. `known` maps the positions of already matched items to their
        entries; these items are skipped.
        """
        waiting: dict[Signature, list[EntryId]] = {}
        taken = set(known.values())
        for entry, signature in reversed(self._said.items()):
            if entry not in taken:
                waiting.setdefault(signature, []).append(entry)
        for position, item in items:
            if position in known:
                continue
            said = body_without_source(item, ()) if item.kind in _SIGNED else b""
            candidates = waiting.get((item.kind, item.at or 0, _signed_text(item.kind, said)))
            if candidates:
                yield position, candidates.pop()

    def are_continued_by(
        self, items: Iterable[tuple[int, Item]], known: Mapping[int, EntryId]
    ) -> bool:
        """Return whether `items` begins with the recorded entries.

        All `items` have their bodies. `known` maps positions of matched items to entries. The
        result is True only if the matched items come first, in the order of their entries. Each
        matched item must have the same content as its entry. The matched items must include
        everything that was imported before. The newest messages that perdure itself added are
        allowed to be missing from the file. Titles are ignored, because a session can be renamed.
        """
        known = {place: entry for place, entry in known.items() if entry not in self._titles}
        if not known:
            return self._has_original and self.mover is None
        order = {entry: number for number, entry in enumerate(self._remaining)}
        numbers = [order[known[place]] for place in sorted(known) if known[place] in order]
        if numbers != sorted(numbers):
            return False
        found = set(known.values())
        own = [entry for entry in self._own_messages if entry in found]
        if not self._imported.keys() <= found or own != self._own_messages[: len(own)]:
            return False
        left = len(known)
        for position, item in items:
            if not left:
                break
            if item.kind == _TITLE:
                continue
            if position not in known:
                return False
            left -= 1
            digest = self._imported.get(known[position])
            if digest is not None and digest != _digest(item, known):
                return False
        return not left

    @property
    def has_said(self) -> bool:
        """Whether there are entries that can be matched only by content."""
        return bool(self._said)


def _has_usage(body: bytes) -> bool:
    if _USAGE not in body:
        return False
    try:
        return _usage_only.decode(body).usage is not None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _opaque_digest(items: Sequence[Item], position: int, item: Item) -> bytes:
    if isinstance(items, Outline):
        return items.opaque[position]
    assert isinstance(item.body, bytes), "an opaque item has bytes"
    return digest_of_opaque(item.body)


def _digest(item: Item, known: Mapping[int, EntryId]) -> bytes | None:
    """Return the digest of the content of `item`; None if the content references unknown items."""
    if any(position not in known for position in (item.references or {}).values()):
        return None
    return hashlib.sha256(body_without_source(item, known)).digest()


def _signed_text(kind: str, body: bytes) -> bytes:
    """Return the part of a body that is hashed; only messages and titles have such a part."""
    return hashlib.sha256(body).digest() if kind in _SIGNED else b""


def known_items(
    items: Sequence[Item],
    entries: Iterable[Entry],
    ids: Mapping[str, EntryId],
    parts: Collection[int],
) -> dict[int, EntryId]:
    """Map the positions of `items`, which have their bodies, to their entries among `entries`."""
    traces = Traces(parts)
    for entry in entries:
        traces.take(entry)
    known = traces.find_known(items, ids)
    return known | dict(traces.said_by(enumerate(items), known))


async def traces_of(store: SessionStore, header: StreamHeader, traces: Traces) -> Traces:
    """Add all entries of a session to `traces`, and return `traces`.

    The entries that a fork shares come first, then the session's own log.
    Raises: SessionNotFound if a session does not exist.
    """
    if header.fork is not None:
        for entry in await store.tree(header.id):
            if entry.stream != header.id:
                traces.take(entry)
    async for entry in own_entries(store, header.id):
        traces.take(entry)
    return traces


async def own_entries(store: SessionStore, stream: StreamId) -> AsyncIterator[Entry]:
    """Yield the entries of the log of `stream`, which are read a page at a time.

    Raises: SessionNotFound if a session does not exist.
    """
    after = EMPTY
    while page := await store.entries(stream, after, PAGE):
        for entry in page:
            yield entry
        after = page[-1].seq


async def foreign_ids(store: SessionStore, streams: Iterable[StreamId]) -> dict[str, EntryId]:
    """Map foreign ids to the entries of `streams`.

    If several entries have the same foreign id, the last entry wins.
    """
    ids: dict[str, EntryId] = {}
    for stream in streams:
        ids.update(await store.aliases(stream))
    return ids
