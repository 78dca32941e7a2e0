"""Read the log of a session: its branch, tree, entries, labels and open questions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.client.amounts import amount
from perdure.errors import AmbiguousId, EntryNotFound, Erased, InvalidEntry
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.fold import labels_of
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, entry_place, is_number, number_of
from perdure.session.info import info_after
from perdure.session.kinds import MESSAGE, TreeBody
from perdure.session.messages import Message
from perdure.session.notes import PROGRAM, Label, LeafMoved, Note, Question
from perdure.stores.access.collector import collector_paused
from perdure.stores.protocol import EMPTY, LogReader, SnapshotReader, StreamState

if TYPE_CHECKING:
    from perdure.stores.lazy_session import SessionStorage

EntryRef = Entry | str
"""An entry as callers name it: the `Entry`, its complete id (``<session>/<seq>``), or its alias."""

SHARED = "\N{UPWARDS ARROW}"
"""Prefix of the seq of an entry that a fork shares with its origin, as in ``↑3``."""

_PAGE = 500
"""The number of entries that `SessionReader.entries` reads at a time."""

_are_snapshot_readers: dict[type, bool] = {}
"""The cached results of `_is_snapshot_reader` for each type, because one check takes 50 µs."""


class OpenQuestion(ShortRepr, frozen=True):
    """An unanswered question. Units: `at` is Unix milliseconds.

    If a flow asks, `flow` is the id of the flow, and `target` is the node or role that waits for
    the answer. A question without `choices` accepts a free text answer.
    """

    id: EntryId
    at: int
    about: EntryId | None
    question: Question
    flow: StreamId | None = None
    target: str | None = None


def _is_snapshot_reader(log: LogReader) -> TypeGuard[SnapshotReader]:
    known = _are_snapshot_readers.get(type(log))
    if known is None:
        known = _are_snapshot_readers[type(log)] = isinstance(log, SnapshotReader)
    return known


def open_questions(asked: Iterable[Entry], at: int) -> list[OpenQuestion]:
    """Return the questions in `asked` that turns asked and that have not expired, oldest first.

    Units: `at` is Unix milliseconds.
    """
    found = [
        OpenQuestion(entry.id, entry.at, entry.about, body)
        for entry in asked
        if isinstance(body := body_of(entry), Question)
        and body.topic != PROGRAM
        and not body.is_expired(at)
    ]
    return sorted(found, key=lambda question: question.at)


def program_question(entry: Entry) -> OpenQuestion | None:
    """Return the question in `entry` if a program, not a turn, asked it; otherwise None."""
    body = body_of(entry)
    if not isinstance(body, Question) or body.topic != PROGRAM:
        return None
    return OpenQuestion(entry.id, entry.at, entry.about, body)


class SessionReader:
    """The log of one session, and its state at the last read.

    The methods from `path` to `find` implement methods of `Session` that have the same names;
    `Session` documents them.
    """

    def __init__(self, backing: SessionStorage, state: StreamState) -> None:
        self.backing = backing
        self.state = state
        self.id = state.header.id

    @property
    def log(self) -> LogReader:
        """The log that this reader currently reads: the log of a draft, or the log in the store."""
        return self.backing.log

    async def path(self, leaf: EntryRef | None, last: int | None, kind: str | None) -> list[Entry]:
        amount("last", last)
        if leaf is None:
            entries = await self.newest(last, kind)
            if self.state.info.status == "erased":  # forks may still show the entries
                raise Erased(self.id)
            return entries
        found = await self.resolve(leaf)
        return await self.log.branch(self.id, found, limit=last, kind=kind)

    async def entry(self, reference: EntryRef) -> Entry:
        log = self.log
        if not isinstance(reference, Entry) and _is_snapshot_reader(log):
            return await log.resolved(self.id, reference)
        return await log.entry(self.id, await self.resolve(reference))

    async def tree_entries(self, last: int | None) -> list[Entry]:
        amount("last", last)
        log = self.log
        entries = await log.tree(self.id, last)
        leaf = (await self.look()).leaf
        if last is None or leaf is None or any(entry.id == leaf for entry in entries):
            return entries
        known = {entry.id for entry in entries}
        branch = await log.branch(self.id, leaf, limit=last)
        return [*(entry for entry in branch if entry.id not in known), *entries]

    async def messages(self, last: int | None) -> list[Message]:
        amount("last", last)
        entries = await self.newest(last, MESSAGE)
        kept = [entry for entry in entries if entry.body]  # the others are erased
        if len(kept) < len(entries) and (await self.look()).info.status == "erased":
            raise Erased(self.id)
        with collector_paused():
            return [message for entry in kept if (message := entry.message) is not None]

    async def entries(
        self, after: int, kind: str | None, *, newest_first: bool, limit: int | None
    ) -> AsyncIterator[Entry]:
        amount("after", after, least=EMPTY)
        amount("limit", limit)
        before = None
        if newest_first:
            after, before = EMPTY, MOST_SEQ if after == EMPTY else after
        left = limit
        while size := _PAGE if left is None else min(_PAGE, left):
            page = await self.log.entries(self.id, after, size, kind=kind, before=before)
            if not page:
                return
            for entry in page:
                yield entry
            if newest_first:
                before = page[-1].seq
            else:
                after = page[-1].seq
            left = None if left is None else left - len(page)

    async def notes(self, note_type: str | None, about: EntryRef | None) -> AsyncIterator[Entry]:
        target = None if about is None else await self.resolve(about)
        for entry in await self.log.notes(self.id, (Note.kind,)):
            if entry.stream != self.id or (target is not None and entry.about != target):
                continue
            body = body_of(entry)
            if isinstance(body, Note) and note_type in (None, body.note_type):
                yield entry

    async def labels(self) -> dict[EntryId, str]:
        labels = labels_of(await self.log.notes(self.id, (Label.kind,)))
        if self.state.header.fork is None:
            return labels
        # The origin's notes also concern branches that a fork of one path does not share.
        others = [entry for entry in labels if entry_place(entry)[0] != self.id]
        unseen = set(others).difference(await self.log.visible_ids(self.id, others))
        return {entry: label for entry, label in labels.items() if entry not in unseen}

    async def find(self, prefix: str) -> EntryId:
        number = prefix.removeprefix(SHARED)
        if number != prefix:
            return await self._shared(number)
        if is_number(prefix):
            with suppress(EntryNotFound):
                return await self.log.find_entry(self.id, prefix)
            return await self._shared(prefix)
        with suppress(EntryNotFound):
            return await self.log.resolve(self.id, prefix)
        return await self._labelled(prefix) or await self.log.find_entry(self.id, prefix)

    async def _labelled(self, label: str) -> EntryId | None:
        """Return the entry with this label, or None.

        Raises: AmbiguousId if several entries have this label.
        """
        found = [entry for entry, text in (await self.labels()).items() if text == label]
        if len(found) > 1:
            own = f"{self.id}/"
            shown = ", ".join(entry.removeprefix(own) for entry in found[:5])
            told = f"{label!r} is the label of several entries ({shown}): use the number of one"
            raise AmbiguousId(label, tuple(found), told=told)
        return found[0] if found else None

    async def look(self) -> StreamState:
        """Read and cache the current state of the session."""
        self.state = await self.log.state(self.id)
        return self.state

    async def newest(self, limit: int | None = None, kind: str | None = None) -> list[Entry]:
        """Return the newest `limit` entries of `kind` on the branch; update `self.state`."""
        log = self.log
        if _is_snapshot_reader(log):
            self.state, entries = await log.newest(self.id, limit=limit, kind=kind)
            return entries
        leaf = (await self.look()).leaf
        return await log.branch(self.id, leaf, limit=limit, kind=kind)

    async def see(
        self, appended: Sequence[Entry], bodies: Sequence[Message | TreeBody | Note] = ()
    ) -> None:
        """Update the cached state with the entries `appended`; reload it if other writers appended.

        `bodies` contains the bodies of `appended`, if known.
        """
        if not appended or appended[0].seq != self.state.head + 1:
            await self.look()
            return
        leaf = self.state.leaf
        for entry in appended:
            if entry.lane == "tree":
                leaf = entry.id
            elif entry.kind == LeafMoved.kind and isinstance(body := body_of(entry), LeafMoved):
                leaf = body.target
        self.state = msgspec.structs.replace(
            self.state,
            head=appended[-1].seq,
            leaf=leaf,
            info=info_after(self.state.info, appended, chain(bodies, repeat(None))),
        )

    async def resolve(self, reference: EntryRef) -> EntryId:
        if isinstance(reference, Entry):
            return reference.id
        return await self.log.resolve(self.id, reference)

    async def in_tree(self, reference: EntryRef) -> EntryId:
        """Return the entry's id.

        Raises: InvalidEntry if `reference` is not part of the conversation.
        """
        found = await self.entry(reference)
        if found.lane != "tree":
            reason = f"{found.id} is a note ({found.kind}), not part of the conversation"
            raise InvalidEntry(reason, told=reason)
        return found.id

    async def _shared(self, number: str) -> EntryId:
        """Return the shared entry with seq `number` from the nearest origin of this fork."""
        log, fork = self.log, self.state.header.fork
        while fork is not None and number_of(number) is not None:
            try:
                return await log.resolve(self.id, f"{fork.stream}/{number}")
            except EntryNotFound:
                fork = (await log.state(fork.stream)).header.fork
        raise EntryNotFound(number, self.id)
