"""Commit to one session: plan, write the lines with one write call, then update the index.

The caller holds the session's lock and has read the file to its end. A rejected commit leaves the
file unchanged. A failed write can leave lines of a commit without the `Batch` that would end the
commit. Readers ignore the lines of an unfinished commit, and the next commit is written after these
lines.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure.codecs.fields import Fields
from perdure.codecs.ids import written_id
from perdure.codecs.protocol import Codec, WriteContext
from perdure.codecs.shared_keys import OURS
from perdure.errors import (
    CorruptLog,
    IdempotencyMismatch,
    SessionExists,
    SessionNotFound,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    Unsupported,
)
from perdure.session.clock import RandomSource
from perdure.session.codec import body_of, readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId, entry_place, place_of
from perdure.session.info import StreamHeader
from perdure.session.kinds import ModelChange
from perdure.session.media.inline import SCHEME
from perdure.session.notes import LeafMoved
from perdure.stores.append_rules import Admission, Sees, initial_state, plan_append
from perdure.stores.chain import (
    SALT_BYTES,
    body_digest,
    commit_hash,
    fingerprint,
    genesis_hash,
    header_line,
)
from perdure.stores.jsonl import reads
from perdure.stores.jsonl.bodies import EntryLines, entry_lines
from perdure.stores.jsonl.contents import entries_of
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import file_name_of
from perdure.stores.jsonl.disk.sidefiles import HeldLease, blob_of, lease_of, put_blob, put_lease
from perdure.stores.jsonl.forks import CopiedFork, contents_of, copy_fork
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.lines import BACKEND, HEADER_TYPE, Batch, Ours, line_of
from perdure.stores.jsonl.retention.content_gc import all_held, held_for
from perdure.stores.jsonl.retention.limits import Limits
from perdure.stores.jsonl.rows import Key
from perdure.stores.jsonl.session_index import SessionIndex, standing_of, state_at
from perdure.stores.protocol import Commit, CommitResult, StreamState, Write
from perdure.stores.retention.quotas import is_counted

_log = logging.getLogger(__name__)


class Appender:
    """Appends commits to the sessions of one folder; only one thread at a time may use it."""

    def __init__(
        self, shelf: SessionIndex, feed: Feed, limits: Limits, random: RandomSource
    ) -> None:
        self._shelf = shelf
        self._limits = limits
        self._folder = shelf.folder
        self._feed = feed
        self._random = random

    def append(self, commit: Commit) -> CommitResult:
        """Append `commit`, with the guarantees of ``SessionStore.commit``."""
        write, key = commit.writes[0], commit.idempotency_key
        with ExitStack() as locks:
            if key is not None:
                locks.enter_context(self._folder.hold_lock("key", key))
            origin = None
            if write.create is not None and write.create.fork is not None:
                # Contents that the copies reference stay until they are written, even if the origin
                # is erased.
                locks.enter_context(all_held(self._folder))
                origin = self._shelf.log(write.create.fork.stream)
            locks.enter_context(self._folder.hold_lock("stream", write.stream))
            # Entries are written to their file before the feed: all entries of the feed are in the
            # file.
            self._feed.refresh()
            acknowledged = self._feed.head(write.stream)
            log = self._shelf.log(write.stream, is_thorough=write.create is None)
            if key is not None:
                replay = self._replay(log, write.stream, key, fingerprint(commit))
                if replay is not None:
                    return replay
            return self._append(commit, log, origin, acknowledged)

    # -- idempotency keys

    def _replay(
        self, log: Log | None, stream: StreamId, key: str, asked: bytes
    ) -> CommitResult | None:
        known = None if log is None else log.keys.get(key)
        if known is not None and known.at < self._limits.keys_since():
            return None
        if log is not None and known is not None:
            if known.asked != asked:
                raise IdempotencyMismatch(key)
            entries = tuple(entries_of(log, range(known.first, known.end)))
            return CommitResult((entries[_copies_in(known, log) :],), is_replay=True)
        other = (self._folder.read_side("keys", key) or b"").decode("utf-8", "replace")
        if other and other != stream:
            there = self._shelf.log(StreamId(other))
            if there is not None and key in there.keys:
                raise IdempotencyMismatch(key)
        return None

    # -- a new commit

    def _append(
        self, commit: Commit, log: Log | None, origin: Log | None, acknowledged: int
    ) -> CommitResult:
        write = commit.writes[0]
        made = CopiedFork(write, 0)
        if write.create is not None:
            if log is not None:
                raise SessionExists(write.stream)
            made = _with_copies(write, write.create, origin)
        contents = commit.blobs if origin is None else (*commit.blobs, *contents_of(origin, made))
        state = _state(self._shelf, log, made.write)
        sees = _sees(log)
        facts = BatchFacts(commit.at, made.count, commit.idempotency_key, fingerprint(commit))
        admission = plan_append(state, made.write, commit.at, sees)
        is_new = write.create is not None and is_counted(write.create)
        batch = CommitLines(self._shelf, log, state, admission, facts)
        if batch.is_empty:
            return CommitResult(((),))
        with (
            held_for(self._folder, admission.entries),
            self._limits.room(admission.entries, contents, is_new=is_new),
        ):
            for content in contents:
                put_blob(self._folder, content)
            if commit.idempotency_key is not None:
                owner = write.stream.encode()
                self._folder.replace("keys", commit.idempotency_key, owner, is_synced=False)
            if write.above_epoch:
                put_lease(self._folder, write.stream, HeldLease(epoch=write.above_epoch))
            salts = [self._random(SALT_BYTES) for _ in admission.entries]
            self._record_loss(write.stream, log, acknowledged)
            write_batch(self._shelf, self._feed, batch, salts)
        return CommitResult((admission.entries[made.count :],), copies=made.ids)

    def _record_loss(self, stream: StreamId, log: Log | None, acknowledged: int) -> None:
        """Record which entries of the feed are missing in the file, before their seqs are reused.

        If the session's file is missing, perdure assumes that a user deleted the session, and
        records the session as erased.
        """
        if log is None and acknowledged >= 0:
            self._feed.forget(stream)
        elif log is not None and acknowledged > log.head:
            self._feed.lose(stream, range(log.head + 1, acknowledged + 1))


def write_batch(
    shelf: SessionIndex, feed: Feed, batch: CommitLines, salts: Sequence[bytes]
) -> None:
    """Write `batch` to its session's file, and assign positions to the entries of `batch`.

    The caller holds the session's lock.
    """
    log, stream = batch.log, batch.header.id
    content = batch.content(salts)
    path = _create(shelf, batch, content) if log is None else _extend(shelf, log, content)
    after = shelf.log(stream)
    if after is None:
        raise StoreUnavailable(str(path), "the file of the session was removed")
    feed.extend_soon(stream, after.head, after.path)


def _create(shelf: SessionIndex, batch: CommitLines, content: bytes) -> Path:
    at = batch.header.created_at
    while True:
        name = shelf.codec.file_name(at, batch.header.id)
        path = shelf.folder.create(name, content)
        if path is not None:
            return shelf.remember_path(batch.header.id, path)
        at += 1  # a file of that name exists and contains no readable session


def _extend(shelf: SessionIndex, log: Log, content: bytes) -> Path:
    try:
        shelf.folder.append(log.path, content)
    except (StoreFull, StoreReadOnly, StoreUnavailable):
        shelf.forget(log.path)
        raise
    return log.path


def _warn_of_length(line: bytes, header: StreamHeader, codec: Codec) -> None:
    most = codec.most_header_bytes
    if most is not None and len(line) > most:
        _log.warning(
            "session %s: the header of its file has %d bytes, and %s looks for sessions in the "
            "first %d of a file: `%s -c` passes over it. Shorten the working directory or the path "
            "of the session it was forked from.",
            header.id,
            len(line),
            codec.name,
            most,
            codec.name,
        )


def _copies_in(key: Key, log: Log) -> int:
    """Return how many entries of the commit with `key` are copies that a fork made."""
    return log.copies if key.first == 0 else 0


def _with_copies(write: Write, header: StreamHeader, origin: Log | None) -> CopiedFork:
    if header.fork is None:
        return CopiedFork(write, 0)
    if origin is None:
        raise SessionNotFound(header.fork.stream)
    return copy_fork(origin, header, header.fork, write)


class BatchFacts(NamedTuple):
    """Data that a commit writes besides its entries.

    `copies` counts the entries that a fork copied; `asked` is the commit's fingerprint, which is
    stored with the idempotency key.
    """

    at: int
    copies: int = 0
    key: str | None = None
    asked: bytes = b""


class CommitLines:
    """The result of a commit, and the lines to write for it."""

    def __init__(
        self,
        shelf: SessionIndex,
        log: Log | None,
        state: StreamState,
        admission: Admission,
        facts: BatchFacts,
    ) -> None:
        self.header = state.header
        self.log = log
        self.admission = admission
        self._shelf = shelf
        self._codec = shelf.codec
        self._facts = facts
        self._state = state
        self._is_new = log is None
        self._records: dict[int, str] = {}
        self._leaf = None if state.leaf is None else entry_place(state.leaf)[1]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write, because the commit only checks a condition."""
        is_keyed = self._facts.key is not None
        return not (self.admission.entries or self._is_new or is_keyed)

    # -- the lines

    def content(self, salts: Sequence[bytes]) -> bytes:
        """Return the bytes to append to the session's file; `salts` has one salt per entry."""
        prefix = b"\n" if self.log is not None and not self.log.is_line_ended else b""
        lines: list[bytes] = []
        header = self._header_lines(lines) if self._is_new else None
        hashed_lines: list[bytes] = []
        last: EntryLines | None = None
        aliases = {entry: alias for alias, entry in self.admission.aliases}
        for entry, salt in zip(self.admission.entries, salts, strict=True):
            digest = body_digest(entry.body, salt)
            hashed_lines.append(header_line(entry, digest))
            last = self._entry_lines(entry, salt, digest, aliases.get(entry.id))
            lines += last.lines
        chain = self._chain(hashed_lines)
        size = sum(len(line) + 1 for line in lines[:-1])
        batch = self._batch(chain, size, len(prefix))
        if last is not None:
            ours = msgspec.structs.replace(last.ours, batch=batch)
            lines[-1] = last.line(ours, self._codec)
        else:
            fields, ours = header or self._key_record()
            ours = msgspec.structs.replace(ours, batch=batch)
            lines[len(lines) - self._is_new :] = [line_of(fields, ours, self._codec)]
        return prefix + b"".join(line + b"\n" for line in lines)

    def _chain(self, hashed_lines: list[bytes]) -> bytes:
        before = self._state.hash
        if not hashed_lines:
            return before
        return commit_hash(before, self._facts.at, self.admission.epoch, hashed_lines)

    def _header_lines(self, lines: list[bytes]) -> tuple[Fields, Ours]:
        """Add the first lines of a new file to `lines`; return the record of the last line added.

        A key of perdure would make the first line longer, and pi skips files whose first line is
        too long. So the first line contains no key of perdure.
        """
        header, codec = self.header, self._codec
        origin = None if header.parent is None else self._shelf.path(header.parent)
        parent = None if origin is None else str(origin)
        first = codec.line(codec.header(header.id, header.created_at, header.cwd, parent))
        _warn_of_length(first, header, codec)
        own = self._beside(HEADER_TYPE, "header", None, header.created_at)
        ours = Ours(of=header.id, header=header, copies=self._facts.copies)
        lines += [first, line_of(own, ours, codec)]
        if not header.title:
            return own, ours
        id = written_id(EntryId(f"{header.id} title"))
        named = codec.placed(codec.title(header.title), id, None, header.created_at)
        lines.append(line_of(named, Ours(of=header.id), codec))
        return named, Ours(of=header.id)

    def _key_record(self) -> tuple[Fields, Ours]:
        """Return the record that stores the idempotency key of a commit without entries."""
        parent = self._record_of(self._leaf)
        name = file_name_of(self._facts.key or "")
        return self._beside(f"{OURS}key", name, parent, self._facts.at), Ours(of=self.header.id)

    def _beside(self, custom_type: str, name: str, parent: str | None, at: int) -> Fields:
        """Return an additional record of perdure, which contains no entry."""
        id = written_id(EntryId(f"{self.header.id} {name}"))
        return self._codec.placed(self._codec.custom(custom_type, None), id, parent, at)

    def _entry_lines(
        self, entry: Entry, salt: bytes, digest: bytes, alias: str | None
    ) -> EntryLines:
        before = self._leaf
        self._move_leaf(entry)
        if entry.lane == "tree":
            above = None if entry.parent_id is None else entry_place(entry.parent_id)[1]
        else:
            above = before if self._codec.has_leaf_record else self._leaf
        ours = Ours(
            of=self.header.id,
            seq=entry.seq,
            kind=entry.kind,
            v=entry.v,
            side=entry.lane == "side",
            parent=above if entry.lane == "tree" else None,
            about=entry.about,
            alias=alias,
            salt=salt,
            digest=digest,
        )
        writing = self._writing(entry, above)
        made = entry_lines(entry, ours, self._record_of(above), writing, self._codec)
        self._records[entry.seq] = made.last_id
        return made

    def _move_leaf(self, entry: Entry) -> None:
        if entry.lane == "tree":
            self._leaf = entry.seq
        elif entry.kind == LeafMoved.kind and isinstance(body := body_of(entry), LeafMoved):
            self._leaf = None if body.target is None else entry_place(body.target)[1]

    def _record_of(self, seq: int | None) -> str | None:
        if seq is None or seq in self._records:
            return None if seq is None else self._records[seq]
        return None if self.log is None else self.log.rows[seq].record

    def _record_named(self, id_: EntryId) -> str | None:
        stream, seq = place_of(id_) or (None, 0)
        is_here = stream == self.header.id and seq <= self._state.head + len(self._records)
        return self._record_of(seq) if is_here else None

    def _writing(self, entry: Entry, above: int | None) -> WriteContext:
        return WriteContext(
            own=written_id(entry.id),
            first=self._first_record,
            last=self._record_named,
            blob=self._blob,
            model=lambda _: self._model_at(above),
        )

    def _first_record(self, id_: EntryId) -> str | None:
        last = self._record_named(id_)
        log, seq = self.log, entry_place(id_)[1] if last is not None else 0
        is_tools = log is not None and seq < len(log.rows) and not log.rows[seq].is_ours
        return last if last is None or is_tools else written_id(id_)

    def _model_at(self, seq: int | None) -> str | None:
        """Return the model that was last set on the path to `seq`, even by an earlier commit."""
        entries, first = self.admission.entries, self._state.head + 1
        while seq is not None and seq >= first and entries[seq - first].kind != ModelChange.kind:
            parent = entries[seq - first].parent_id
            seq = None if parent is None else entry_place(parent)[1]
        if seq is None:
            return None
        change = entries[seq - first] if seq >= first else None
        if change is None and self.log is not None:
            model = self.log.rows[seq].model
            change = None if model is None else entries_of(self.log, (model,))[0]
        body = None if change is None else readable(change)
        return body.model if isinstance(body, ModelChange) else None

    def _blob(self, handle: str) -> bytes | None:
        return blob_of(self._shelf.folder, handle.removeprefix(SCHEME))

    # -- the batch

    def _batch(self, chain: bytes, size: int, prefix_bytes: int) -> Batch:
        facts, admission, log = self._facts, self.admission, self.log
        info = admission.info
        torn = 0 if log is None else log.torn_bytes
        payload = 0 if log is None else log.payload
        return Batch(
            first=self._state.head + 1,
            count=len(admission.entries),
            size=size,
            at=facts.at,
            hash=chain.hex(),
            payload=payload + sum(len(entry.body) for entry in admission.entries),
            updated_at=info.updated_at,
            epoch=admission.epoch,
            leaf=None if admission.leaf is None else entry_place(admission.leaf)[1],
            turn=admission.open_turn,
            messages=info.messages,
            turns=info.turns,
            status=info.status,
            title=info.title,
            first_text=info.first_text,
            cwd=info.cwd,
            key=facts.key,
            asked=None if facts.key is None else facts.asked,
            foreign=log.hash.hex() if log is not None and log.run.hashed else None,
            torn=torn + prefix_bytes if torn else 0,
        )


def _sees(log: Log | None) -> Sees:
    return lambda id_: log is not None and reads.tree_seq(log, id_) is not None


def _state(shelf: SessionIndex, log: Log | None, write: Write) -> StreamState:
    if write.create is not None:
        return initial_state(write.create, genesis_hash(write.create))
    if log is None:
        raise SessionNotFound(write.stream)
    return sound_state(shelf, log)


def sound_state(shelf: SessionIndex, log: Log) -> StreamState:
    """Return the state of a session that is about to be extended.

    Raises: CorruptLog if part of the session is damaged; Unsupported if the file has a version that
    is too old.
    """
    if log.faults:
        seq, problem = log.faults[0]
        raise CorruptLog(log.header.id, -1 if seq is None else seq, problem)
    if log.version < shelf.codec.oldest_version:
        raise Unsupported("appending_to_files_of_older_versions", BACKEND)
    return state_at(standing_of(log), lease_of(shelf.folder, log.header.id).epoch)
