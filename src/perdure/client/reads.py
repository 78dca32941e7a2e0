"""Read operations of `Session`: branch, tree, entries, events, labels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import chain, repeat

import msgspec

from perdure.bounds.short_repr import short_repr
from perdure.client.amounts import amount
from perdure.client.clock import Outside
from perdure.client.watch import Watch, watch_session
from perdure.engine.hooks.registry import Hooks
from perdure.errors import EntryNotFound, Erased
from perdure.events.bus import LiveBus
from perdure.session.argument_checks import takes_all_declared
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.fold import labels_of
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, entry_place, is_number, number_of
from perdure.session.info import info_after
from perdure.session.kinds import MESSAGE, TreeBody
from perdure.session.messages import Message
from perdure.session.notes import Label, LeafMoved, Note, Question
from perdure.session.tree import TreeNode, tree_of
from perdure.stores.access.collector import collector_paused
from perdure.stores.lazy_session import SessionStorage
from perdure.stores.protocol import EMPTY, SnapshotReader, StreamState

EntryRef = Entry | str
"""An entry as callers name it: itself, its whole id (``<session>/<seq>``), or its foreign id."""

SHARED = "\N{UPWARDS ARROW}"
"""Written before the number of an entry that a fork shares with its origin."""

_PAGE = 500
"""Entries that `entries` reads at a time."""


class OpenQuestion(msgspec.Struct, frozen=True):
    """An unanswered question. Units: `at` is Unix milliseconds.

    If a flow asks, `flow` is its id and `target` the waiting node or role. A question without
    `choices` takes a free text answer.
    """

    __repr__ = short_repr

    id: EntryId
    at: int
    about: EntryId | None
    question: Question
    flow: StreamId | None = None
    target: str | None = None


def open_questions(asked: Iterable[Entry], at: int) -> list[OpenQuestion]:
    """Return those of the questions `asked` that can still be answered at `at`, oldest first.

    Units: `at` is Unix milliseconds.
    """
    found = [
        OpenQuestion(entry.id, entry.at, entry.about, body)
        for entry in asked
        if isinstance(body := body_of(entry), Question) and not body.is_expired(at)
    ]
    return sorted(found, key=lambda question: question.at)


@takes_all_declared
class SessionReader:
    """Read operations of `Session`. Every read sees the current log, also of a draft."""

    def __init__(
        self,
        backing: SessionStorage,
        state: StreamState,
        outside: Outside,
        bus: LiveBus,
        hooks: Hooks | None = None,
        *,
        entry_ids: Mapping[EntryId, EntryId] = {},
    ) -> None:
        self._backing = backing
        self._state = state
        self._outside = outside
        self._bus = bus
        self._hooks = hooks or Hooks()
        self._entry_ids = entry_ids

    @property
    def id(self) -> StreamId:
        """The session's id."""
        return self._state.header.id

    @property
    def head(self) -> int:
        """The last seq that this handle has seen; -1 without entries."""
        return self._state.head

    @property
    def leaf(self) -> EntryId | None:
        """The entry that the conversation continues from, as of the last read."""
        return self._state.leaf

    @property
    def is_draft(self) -> bool:
        """Whether the session is not stored yet."""
        return self._backing.is_draft

    @property
    def title(self) -> str | None:
        """The title, as of the last read."""
        return self._state.info.title

    @property
    def metadata(self) -> Mapping[str, object]:
        """The metadata given at creation."""
        return self._state.header.metadata or {}

    @property
    def subject(self) -> str | None:
        """The subject given at creation: the person the session is about or with."""
        return self._state.header.subject

    @property
    def entry_ids(self) -> Mapping[EntryId, EntryId]:
        """Entry of the origin -> its copy, on the handle that `fork` returns where forks copy.

        Empty where a fork shares the entries of its origin, under their ids.
        """
        return self._entry_ids

    async def path(
        self,
        leaf: EntryRef | None = None,
        *,
        last: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        """Return the entries root -> `leaf` (default: the session's leaf).

        With `kind` only entries of it, such as "message"; with `last` only the newest.
        Raises: EntryNotFound; ValueError when `last` is negative, or greater than any store can
        count.
        """
        amount("last", last)
        if leaf is None:
            return await self._newest(last, kind)
        found = await self._resolve(leaf)
        return await self._backing.log.branch(self.id, found, limit=last, kind=kind)

    async def entry(self, reference: str) -> Entry:
        """Return the entry with the whole id, or the alias, `reference`.

        Of two entries with the same alias the newer is returned; one of this session comes before
        one that a fork shares. Raises: EntryNotFound.
        """
        return await self._backing.log.entry(self.id, await self._resolve(reference))

    async def tree(self, last: int | None = None) -> tuple[TreeNode, ...]:
        """Return every branch as nested nodes, roots first, with their labels.

        Shape: with `last` those of `tree_entries(last)`; one whose parent is older is a root.
        Raises: ValueError when `last` is negative, or greater than any store can count.
        """
        entries, labels = await self.tree_entries(last), await self.labels()
        with collector_paused():
            return tree_of(entries, labels)

    async def tree_entries(self, last: int | None = None) -> list[Entry]:
        """Return the entries of `tree` as a flat list, in log order, a fork's origin first.

        With `last` only the newest of all branches; where the leaf is not among them, the newest
        of its branch too. Raises: as `tree`.
        """
        amount("last", last)
        log = self._backing.log
        entries = await log.tree(self.id, last)
        leaf = (await self._look()).leaf
        if last is None or leaf is None or any(entry.id == leaf for entry in entries):
            return entries
        known = {entry.id for entry in entries}
        branch = await log.branch(self.id, leaf, limit=last)
        return [*(entry for entry in branch if entry.id not in known), *entries]

    async def messages(self, last: int | None = None) -> list[Message]:
        """Return the newest `last` messages of the branch (default: all), oldest first.

        Raises: ValueError when `last` is negative, or greater than any store can count; Erased.
        """
        amount("last", last)
        entries = await self._newest(last, MESSAGE)
        kept = [entry for entry in entries if not entry.is_erased]
        if len(kept) < len(entries) and (await self._look()).info.status == "erased":
            raise Erased(self.id)
        with collector_paused():
            return [message for entry in kept if (message := entry.message) is not None]

    async def entries(
        self,
        after: int = EMPTY,
        *,
        kind: str | None = None,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Entry]:
        """Iterate over the session's own log, from the first entry after seq `after` to its head.

        `kind` selects entries of one kind, side entries included; `newest_first` starts at the
        head; `limit` ends after that many.
        Raises: ValueError when `after` is less than -1, or `limit` negative.
        """
        amount("after", after, least=EMPTY)
        amount("limit", limit)
        before = MOST_SEQ if newest_first else None
        left = limit
        while size := _PAGE if left is None else min(_PAGE, left):
            page = await self._backing.log.entries(self.id, after, size, kind=kind, before=before)
            if not page:
                return
            for entry in page:
                yield entry
            if newest_first:
                before = page[-1].seq
            else:
                after = page[-1].seq
            left = None if left is None else left - len(page)

    async def notes(
        self, note_type: str | None = None, *, about: EntryRef | None = None
    ) -> AsyncIterator[Entry]:
        """Iterate over the notes in the session's own log, oldest first.

        `note_type` selects one type, `about` the notes about one entry. `body_of` returns the
        `Note` of an entry. Erased notes are skipped. Raises: EntryNotFound.
        """
        target = None if about is None else await self._resolve(about)
        for entry in await self._backing.log.notes(self.id, (Note.kind,)):
            if entry.stream != self.id or (target is not None and entry.about != target):
                continue
            body = body_of(entry)
            if isinstance(body, Note) and note_type in (None, body.note_type):
                yield entry

    def watch(self, after: int | None = None) -> Watch:
        """Watch the events after seq `after` (default: after `head`), including future ones.

        Shape: durable events of all processes without gap or repetition; live events and snapshots
        of open calls only of this process. Ends when the store is closed.
        Raises: ValueError when `after` is less than -1. The first step raises WrongArgument (a
        ValueError) when `after` is past the newest entry: it belongs to another log.
        """
        amount("after", after, least=EMPTY)
        head = self.head
        after = head if after is None else after
        return watch_session(self._backing, self._bus, self.id, after, head)

    async def labels(self) -> dict[EntryId, str]:
        """Return entry -> label for every labelled entry of this session."""
        labels = labels_of(await self._backing.log.notes(self.id, (Label.kind,)))
        if self._state.header.fork is None:
            return labels
        # The origin's notes also concern branches that a fork of one path does not share.
        others = [entry for entry in labels if entry_place(entry)[0] != self.id]
        unseen = set(others).difference(await self._backing.log.visible_ids(self.id, others))
        return {entry: label for entry, label in labels.items() if entry not in unseen}

    async def find(self, prefix: str) -> EntryId:
        """Resolve an id, a seq (of an origin: ``↑3``), a foreign id or a prefix to an entry.

        All other calls take whole ids. Digits alone are a seq, never a prefix.
        Raises: EntryNotFound, AmbiguousId.
        """
        number = prefix.removeprefix(SHARED)
        if number == prefix:
            try:
                return await self._backing.log.find_entry(self.id, prefix)
            except EntryNotFound:
                if not is_number(prefix):
                    raise
        return await self._shared(number)

    async def _look(self) -> StreamState:
        """Read and cache the current state of the session."""
        self._state = await self._backing.log.state(self.id)
        return self._state

    async def _newest(self, limit: int | None = None, kind: str | None = None) -> list[Entry]:
        """Return the newest `limit` entries of `kind` on the branch; cache the state."""
        log = self._backing.log
        if isinstance(log, SnapshotReader):
            self._state, entries = await log.newest(self.id, limit=limit, kind=kind)
            return entries
        leaf = (await self._look()).leaf
        return await log.branch(self.id, leaf, limit=limit, kind=kind)

    async def _see(
        self, appended: Sequence[Entry], bodies: Sequence[Message | TreeBody | Note] = ()
    ) -> None:
        """Update the cached state after `appended`; read it again only if others wrote.

        `bodies` are those of `appended`, if known.
        """
        if not appended or appended[0].seq != self.head + 1:
            await self._look()
            return
        leaf = self.leaf
        for entry in appended:
            if entry.lane == "tree":
                leaf = entry.id
            elif entry.kind == LeafMoved.kind and isinstance(body := body_of(entry), LeafMoved):
                leaf = body.target
        self._state = msgspec.structs.replace(
            self._state,
            head=appended[-1].seq,
            leaf=leaf,
            info=info_after(self._state.info, appended, chain(bodies, repeat(None))),
        )

    async def _resolve(self, reference: EntryRef) -> EntryId:
        if isinstance(reference, Entry):
            return reference.id
        return await self._backing.log.resolve(self.id, reference)

    async def _shared(self, number: str) -> EntryId:
        """Return the shared entry `number` of the nearest origin of this fork."""
        log, fork = self._backing.log, self._state.header.fork
        while fork is not None and number_of(number) is not None:
            try:
                return await log.resolve(self.id, f"{fork.stream}/{number}")
            except EntryNotFound:
                fork = (await log.state(fork.stream)).header.fork
        raise EntryNotFound(number, self.id)
