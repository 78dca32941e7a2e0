"""Erase session files: delete the whole files and their side files.

The plan is first written to ``.perdure/erasures``; after a kill, the next process that opens the
folder continues the erasure. Texts are removed from the search index before their file is deleted.
When the erasure is complete, its plan becomes the certificate. The feed keeps the positions of the
entries, so that no position is reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from perdure.errors import HeadConflict, SessionNotFound, Unsupported
from perdure.session.ids import StreamId
from perdure.stores.jsonl import reads
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder, is_session_file
from perdure.stores.jsonl.disk.sidefiles import blobs_in, decoded_side
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.lines import BACKEND
from perdure.stores.jsonl.retention.content_gc import LOCK as CONTENTS_LOCK
from perdure.stores.jsonl.retention.content_gc import ReferenceScan, remove_unreferenced, sizes_of
from perdure.stores.jsonl.search.index_file import LOCK as INDEX_LOCK
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.session_index import FileState, SessionIndex
from perdure.stores.regular_files import NotRegular, check_only_name, read_regular
from perdure.stores.retention import copies
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.cascade import Reach, reach_of
from perdure.stores.retention.erase import (
    Certificate,
    Counts,
    ErasedSession,
    EraseRequest,
    Relation,
    how_related,
)
from perdure.stores.retention.erasure_plan import roots_among

KIND = "erasures"
_BACKUPS = "backups"


class Record(msgspec.Struct, frozen=True):
    """An erasure, as it is stored in the folder: the remaining work, and the certificate.

    Shape: `files` maps the names of session files to session ids; `keys` and `contents` are the
    idempotency keys and contents that only these files had. The fields `files`, `keys` and
    `contents` are empty if the certificate is complete. If `is_removal` is True, there is no
    certificate, and the record is deleted after the removal.
    """

    certificate: Certificate
    files: dict[str, StreamId] = {}
    keys: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    is_removal: bool = False


_record = msgspec.json.Decoder(Record)
_backups = msgspec.json.Decoder(list[Backup])


class Eraser:
    """Erases sessions of one folder, on the thread of the folder's handle."""

    def __init__(self, shelf: SessionIndex, feed: Feed, index: Index, namespace: str) -> None:
        self._shelf = shelf
        self._folder = shelf.folder
        self._feed = feed
        self._index = index
        self._namespace = namespace

    def erase(self, request: EraseRequest) -> Certificate:
        """Implement ``RetentionService.erase`` by removing whole sessions."""
        if request.scope == "entries":
            raise Unsupported("erase", BACKEND)
        with self._folder.hold_lock("erasure", ""):
            self._go_on(request.at)
            standings = {s.header.id: (path, s) for path, s in self._shelf.standings()}
            roots = _roots(standings, request)
            if roots is None:
                return self._earlier(request.name or "")
            reach = reach_of(roots, self._relations(standings), request.fork_policy)
            if request.expected_head is None:
                record = self._begin(request, reach, standings)
                self._check_free(reach.targets)
                kept = self._keep(record)
            else:
                record, kept = self._begin_at_head(request, reach, standings)
            with self._folder.locks.waiting():
                return copies.with_file_names(self._finish(kept, request.at), record.certificate)

    def _keep(self, record: Record) -> Record:
        """Write `record` without file names; return the record as written."""
        certificate = copies.without_file_names(record.certificate)
        kept = msgspec.structs.replace(record, certificate=certificate)
        self._put(kept)
        return kept

    def _begin_at_head(
        self,
        request: EraseRequest,
        reach: Reach,
        standings: dict[StreamId, tuple[Path, FileState]],
    ) -> tuple[Record, Record]:
        """Start the erasure; remove the named session under the same lock as the head check.

        Shape: the result is the record, and the remaining work of the erasure.
        Raises: HeadConflict.
        """
        stream = StreamId(request.name or "")
        with self._folder.hold_lock("stream", stream):
            log = self._shelf.require_log(stream)
            if request.expected_head not in (None, log.head):
                raise HeadConflict(stream, request.expected_head or 0, log.head)
            record = self._begin(request, reach, standings)
            self._check_free(target for target in reach.targets if target != stream)
            kept = self._keep(record)
            own = [name for name, id_ in record.files.items() if id_ == stream]
            with self._folder.locks.waiting():
                for name in own:
                    self._take_away(name, stream)
            files = {name: id_ for name, id_ in record.files.items() if name not in own}
            kept = msgspec.structs.replace(kept, files=files)
            self._put(kept)
        return record, kept

    def remove(self, request: EraseRequest, is_free: Callable[[], bool]) -> bool:
        """Remove a session without a certificate.

        The session is removed only if `is_free` returns True while the session is locked.
        Raises: SessionNotFound.
        """
        stream = StreamId(request.name or "")
        with self._folder.hold_lock("erasure", ""):
            self._go_on(request.at)
            standings = {s.header.id: (path, s) for path, s in self._shelf.standings()}
            if stream not in standings:
                raise SessionNotFound(stream)
            with self._folder.hold_lock("stream", stream):
                if not is_free():
                    return False
                record = self._begin(request, Reach((stream,)), standings)
                record = msgspec.structs.replace(record, is_removal=True)
                self._check_free(())
                self._put(record)
                with self._folder.locks.waiting():
                    for name in record.files:
                        self._take_away(name, stream)
                # From here on the name may belong to another session.
                record = msgspec.structs.replace(record, files={})
                self._put(record)
            with self._folder.locks.waiting():
                self._finish(record, request.at)
            return True

    def go_on(self, at: int) -> None:
        """Finish the erasures of killed processes."""
        with self._folder.hold_lock("erasure", ""):
            self._go_on(at)

    def has_open(self) -> bool:
        """Whether a started erasure is not finished."""
        return any(not record.certificate.is_complete for record in self._records())

    def certificates(self) -> list[Certificate]:
        """Implement ``RetentionService.erasures``."""
        found = [record.certificate for record in self._records() if not record.is_removal]
        return sorted(found, key=lambda certificate: (certificate.at, certificate.id))

    # -- scope

    def _relations(self, standings: dict[StreamId, tuple[Path, FileState]]) -> Iterator[Relation]:
        for id_, (_, standing) in standings.items():
            header = standing.header
            if header.parent is None:
                continue
            log = self._shelf.log(id_)
            has_copies = log is not None and log.copies > 0
            how = how_related(is_fork=False, origin=header.origin, has_copies=has_copies)
            yield Relation(id_, header.parent, how)

    def _earlier(self, session: str) -> Certificate:
        for certificate in reversed(self.certificates()):
            if any(each.session == session for each in certificate.sessions):
                return certificate
        raise SessionNotFound(session)

    def _begin(
        self,
        request: EraseRequest,
        reach: Reach,
        standings: dict[StreamId, tuple[Path, FileState]],
    ) -> Record:
        logs = [log for id_ in reach.targets if (log := self._shelf.log(id_)) is not None]
        notes = [note for log in logs for note in reads.notes(log, copies.TELLING)]
        files = {standings[log.header.id][0].name: log.header.id for log in logs}
        self._check_names(files)
        partials = [id_ for id_ in reach.targets if self._folder.side("partials", id_).exists()]
        keys = tuple(key for log in logs for key in log.keys)
        contents = self._own_contents(files)
        certificate = request.certificate(
            BACKEND,
            self._namespace,
            sessions=tuple(map(_line, logs)),
            removed=Counts(
                foreign_ids=sum(len(log.aliases) for log in logs),
                idempotency_keys=len(keys),
                partial_answers=len(partials),
                contents=len(contents),
                content_bytes=sum(size for _, size in contents),
            ),
            copies=(
                *copies.fork_copies((), reach.copies),
                *copies.outside(notes),
                *copies.backed_up(backups(self._folder)),
                *copies.of_files("the folder"),
            ),
        )
        return Record(certificate, files, keys, tuple(name for name, _ in contents))

    def _check_names(self, files: Iterable[str]) -> None:
        """Reject files with a second hard link, because that link would survive the erasure.

        Raises: StoreUnavailable.
        """
        try:
            for name in files:
                with suppress(FileNotFoundError):
                    check_only_name(self._folder.path / name, self._folder.drafts)
        except OSError as error:
            self._folder.fail(error)

    def _own_contents(self, files: Iterable[str]) -> list[tuple[str, int]]:
        """Return the contents that only `files` reference, with their sizes."""
        kept = sizes_of(blobs_in(self._folder))
        named = set(kept)
        looking = ReferenceScan(self._shelf)
        named &= _union(looking.names_in(self._folder.path / name) for name in files)
        if named:
            others = (path for path, _ in self._folder.files() if path.name not in files)
            beside = (self._folder.inner / "partials").iterdir()
            found = [looking.names_in(path) for path in (*others, *beside)]
            if None in found:  # the references of a damaged session are unknown
                return []
            named -= _union(found)
        return [(name, kept[name]) for name in sorted(named)]

    # -- execution

    def _check_free(self, streams: Iterable[StreamId]) -> None:
        """Check before starting that no other process holds a needed lock. Raises: LockBusy."""
        for stream in streams:
            with self._folder.hold_lock("stream", stream):
                pass
        for kind in (INDEX_LOCK, CONTENTS_LOCK, "feed"):
            with self._folder.hold_lock(kind, ""):
                pass

    def _finish(self, record: Record, at: int) -> Certificate:
        if record.files:
            self._index.forget(frozenset(record.files.values()))  # all at once
        for name, stream in record.files.items():
            with self._folder.hold_lock("stream", stream):
                self._take_away(name, stream)
        for key in record.keys:
            self._folder.remove_side("keys", key)
        remove_unreferenced(self._shelf, frozenset(record.contents))
        done = msgspec.structs.replace(record.certificate, finished_at=at, is_complete=True)
        if record.is_removal:
            self._folder.remove_side(KIND, done.id)
        else:
            self._put(Record(done))
        return done

    def _take_away(self, name: str, stream: StreamId) -> None:
        path = self._folder.path / name

        def remove() -> None:
            with suppress(FileNotFoundError):
                self._folder.remove(path)

        self._index.remove({stream}, remove)
        self._shelf.forget(path)
        self._feed.forget(stream)
        for kind in ("leases", "partials"):
            self._folder.remove_side(kind, stream)

    def _go_on(self, at: int) -> None:
        for record in self._records():
            if not record.certificate.is_complete:
                self._finish(record, at)

    # -- the records

    def _records(self) -> list[Record]:
        found: list[Record] = []
        for path in sorted((self._folder.inner / KIND).iterdir()):
            # An incomplete plan that never started; or a removal that deleted its session.
            with suppress(ValueError, FileNotFoundError, NotRegular):
                record = _record.decode(read_regular(path))
                if all(map(is_session_file, record.files)):
                    found.append(record)
        return found

    def _put(self, record: Record) -> None:
        content = msgspec.json.encode(record)
        self._folder.replace(KIND, record.certificate.id, content, is_synced=True)


def remember_backup(folder: Folder, backup: Backup) -> None:
    """Implement ``RetentionService.remember_backup``."""
    with folder.hold_lock(_BACKUPS, ""):
        others = (each for each in backups(folder) if each.path != backup.path)
        content = msgspec.json.encode(sorted((*others, backup), key=lambda each: each.at))
        folder.replace("limits", _BACKUPS, content, is_synced=True)


def backups(folder: Folder) -> list[Backup]:
    """Implement ``RetentionService.backups``."""
    return decoded_side(folder, "limits", _BACKUPS, _backups) or []


def _roots(
    standings: dict[StreamId, tuple[Path, FileState]], request: EraseRequest
) -> list[StreamId] | None:
    """Return the sessions that the request names; None if the named session does not exist."""
    if request.scope == "session":
        named = StreamId(request.name or "")
        return [named] if named in standings else None
    return roots_among(request, ((each.header, False) for _, each in standings.values()))


def _line(log: Log) -> ErasedSession:
    return ErasedSession(
        session=log.header.id,
        is_whole=True,
        erased=((0, log.head),) if log.head >= 0 else (),
        entries=log.head + 1,
        bytes=log.payload,
        digests=0,
        head=log.head,
        hash_before=log.hash.hex(),
        hash_after=None,
    )


def _union(found: Iterable[set[str] | None]) -> set[str]:
    return {name for names in found for name in names or ()}
