"""Verify a folder: every session's lines and hashes, every content, the search index.

``stores.verification`` recomputes the hashes and counts that every backend stores. This module
checks the faults that only files have: unreadable lines, cut-off writes, and missing acknowledged
entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perdure.errors import CorruptLog, SessionNotFound, StoreError
from perdure.session.ids import StreamId
from perdure.stores.jsonl import reads
from perdure.stores.jsonl.contents import content_named, media_of, stored_of
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.jsonl.disk.sidefiles import blobs_in
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.maintenance.index_check import index_problems, indexed_texts
from perdure.stores.jsonl.maintenance.salvage import entries_lost
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.session_index import SessionIndex, standing_of, state_at
from perdure.stores.protocol import OnProgress, Problem, Verification
from perdure.stores.regular_files import check_only_name, read_regular
from perdure.stores.verification import (
    Steps,
    StoredEntry,
    blob_problems,
    content_lost,
    content_steps,
    contents_shown,
    stream_problems,
)


def verification(
    shelf: SessionIndex, feed: Feed, index: Index, told: OnProgress | None = None
) -> Verification:
    """Implement ``MaintenanceService.verify``."""
    feed.refresh()
    problems: list[Problem] = []
    cut_off: list[Problem] = []
    seen: dict[StreamId, Path] = {}
    streams = entries = 0
    steps = Steps(told, _steps(shelf) + indexed_texts(index) if told else 0)
    for path, _ in sorted(shelf.folder.files()):
        log = Log(path, shelf.codec)  # read again, whatever is in memory
        try:
            found = list(_file_problems(log, seen, feed, steps))
            found += _contents_missed(shelf, log) if log.is_session else []
        except SessionNotFound:  # erased meanwhile
            continue
        except StoreError as error:
            found = [Problem(None, None, f"{path.name} cannot be read ({error})")]
        problems += found
        cut_off += _writes_cut_off(log)
        streams += log.is_session
        entries += len(log.rows)
    problems += _irregular(shelf.folder)
    problems += _content_problems(shelf.folder, steps)
    problems += index_problems(index, steps)
    steps.end()
    return Verification(streams, entries, tuple(problems), cut_off=tuple(cut_off))


def _irregular(folder: Folder) -> Iterator[Problem]:
    """Yield every session file that is not a regular file, or has several hard links."""
    for name in sorted(folder.names()):
        try:
            check_only_name(folder.path / name, folder.drafts)
        except FileNotFoundError:  # erased meanwhile
            continue
        except OSError as error:
            yield Problem(None, None, f"{name}: {error}")


def _steps(shelf: SessionIndex) -> int:
    """Return the number of entries and contents to check; 0 if unknown."""
    try:
        entries = sum(standing.head + 1 for _, standing in shelf.standings())
        return entries + sum(content_steps(_size(path)) for path in blobs_in(shelf.folder))
    except (StoreError, OSError):
        return 0


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:  # removed by a vacuum meanwhile
        return 0


def _file_problems(
    log: Log, seen: dict[StreamId, Path], feed: Feed, steps: Steps
) -> Iterator[Problem]:
    name = log.path.name
    if not log.refresh():
        if log.path.exists():  # else it was erased meanwhile
            yield Problem(None, None, f"{name} does not begin as a session file does")
        return
    stream = log.header.id
    if stream in seen:
        yield Problem(stream, None, f"{name} holds the same session as {seen[stream].name}")
    seen[stream] = log.path
    yield from _line_problems(log)
    yield from entries_lost(feed, log)
    yield from stream_problems(
        state_at(standing_of(log), max((commit.epoch for commit in log.commits), default=0)),
        log.all_commits(),
        _with_progress(stored_of(log), steps),
        lambda id_: reads.tree_seq(log, id_) is not None,
    )


def _with_progress(entries: Iterator[StoredEntry], steps: Steps) -> Iterator[StoredEntry]:
    for entry in entries:
        yield entry
        steps.add()


def _line_problems(log: Log) -> Iterator[Problem]:
    stream = log.header.id
    for seq, problem in log.faults:
        yield Problem(stream, seq, problem)
    for offset, size in log.unreadable:
        if offset < log.end:
            yield Problem(stream, None, f"the line at byte {offset} ({size} bytes) is no record")
    if log.torn_bytes:
        text = f"the last {log.torn_bytes} bytes of its file were never committed: left unread"
        yield Problem(stream, None, text)


def _writes_cut_off(log: Log) -> Iterator[Problem]:
    """Yield every incomplete write that is followed by other lines."""
    for offset, size in log.cut_off:
        text = f"a write was cut off: {size} bytes from byte {offset} are left unread"
        yield Problem(log.header.id, None, text)


def _contents_missed(shelf: SessionIndex, log: Log) -> Iterator[Problem]:
    """Yield each missing content that an entry references."""
    known: set[str] = set()
    for stored in stored_of(log):
        for name in contents_shown(stored.entry):
            if name not in known and not _is_kept(shelf, log, name):
                yield content_lost(stored.entry, name)
            known.add(name)


def _is_kept(shelf: SessionIndex, log: Log, name: str) -> bool:
    try:
        return media_of(log, name) is not None or content_named(shelf, name) is not None
    except CorruptLog:
        return True  # it exists, and is reported as damaged


def _content_problems(folder: Folder, steps: Steps) -> Iterator[Problem]:
    for path in blobs_in(folder):
        try:
            steps.add(content_steps(_size(path)))
            yield from blob_problems(path.name, read_regular(path))
        except FileNotFoundError:  # removed by a vacuum meanwhile
            continue
        except OSError as error:
            yield Problem(None, None, f"the content {path.name} cannot be read ({error})")
