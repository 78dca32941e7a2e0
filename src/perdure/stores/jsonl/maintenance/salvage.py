"""Read every readable record of a folder's files, even if their first line is lost.

Files are indexed in the same way as in an undamaged folder, so the entry of an unreadable line
keeps its seq. If the first line is not a header, this module reads a copy of the file that starts
with a header made from the file's name. ``stores.maintenance.repair`` interprets the records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from perdure.errors import StoreError
from perdure.session.ids import StreamId
from perdure.stores.chain import genesis_hash
from perdure.stores.jsonl.contents import stored_of
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import session_in
from perdure.stores.jsonl.disk.sidefiles import lease_of
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.maintenance.repair import SalvagedNamespace, SalvagedStream
from perdure.stores.protocol import Problem
from perdure.stores.regular_files import read_regular


def salvage_namespace(shelf: SessionIndex, feed: Feed) -> SalvagedNamespace:
    """Implement ``MaintenanceService.salvage_namespace``. The call blocks."""
    feed.refresh()
    with tempfile.TemporaryDirectory(prefix="perdure-") as place:
        return _Salvage(shelf, feed, Path(place)).run()


class _Salvage:
    """Reads the files of a folder one by one."""

    def __init__(self, shelf: SessionIndex, feed: Feed, place: Path) -> None:
        self._shelf = shelf
        self._feed = feed
        self._place = place
        self._losses: list[Problem] = []
        self._found: dict[StreamId, SalvagedStream] = {}

    def run(self) -> SalvagedNamespace:
        for path, _ in sorted(self._shelf.folder.files()):
            try:
                self._take(path)
            except StoreError as error:
                self._losses.append(Problem(None, None, f"{path.name} cannot be read ({error})"))
        return SalvagedNamespace(tuple(self._found.values()), self._losses)

    def _take(self, path: Path) -> None:
        log = Log(path, self._shelf.codec)
        is_whole = log.refresh()
        if not is_whole:
            copy = self._with_header(path)
            if copy is None:
                text = (
                    f"{path.name} is no session file: neither its first line nor its name says so"
                )
                self._losses.append(Problem(None, None, text))
                return
            log = Log(copy, self._shelf.codec)
            log.refresh()
        log.take_acknowledged(self._feed.head(log.header.id))
        is_known = log.has_own_header or (is_whole and not any(row.is_ours for row in log.rows))
        remains = self._remains(log, has_header=is_known)
        if not is_whole:
            text = f"the first line of {path.name} is damaged: it is made again"
            self._losses.append(Problem(remains.id, None, text))
        self._losses += [*entries_lost(self._feed, log), *self._lines_lost(log, path)]
        other = self._found.get(remains.id)
        if other is not None:
            text = f"{path.name} holds the session too: what is only in the shorter one is left out"
            self._losses.append(Problem(remains.id, None, text))
        if other is None or len(other.rows) < len(remains.rows):
            self._found[remains.id] = remains

    def _with_header(self, path: Path) -> Path | None:
        """Return a copy of the file with a header from its name; None if the name has no id."""
        session = session_in(path.name)
        if session is None:
            return None
        header = self._shelf.codec.header(session, 0, None, None)
        copy = self._place / path.name
        copy.write_bytes(msgspec.json.encode(header) + b"\n" + read_regular(path))
        return copy

    def _remains(self, log: Log, *, has_header: bool) -> SalvagedStream:
        header = log.header
        rows = {each.entry.seq: each for each in stored_of(log) if each.digest}
        return SalvagedStream(
            id=header.id,
            header=header if has_header else None,
            genesis=genesis_hash(header) if has_header else None,
            head=max(log.head, self._feed.head(header.id)),
            tree=tuple(id_ for id_ in (log.id_of(log.leaf),) if id_ is not None),
            epoch=lease_of(self._shelf.folder, header.id).epoch,
            is_erased=False,
            rows=rows,
            commits=tuple(log.all_commits()),
            aliases=tuple((name, int(id_.rpartition("/")[2])) for name, id_ in log.aliases),
        )

    def _lines_lost(self, log: Log, path: Path) -> Iterator[Problem]:
        stream, shift = log.header.id, log.path.stat().st_size - path.lstat().st_size
        for offset, size in log.unreadable:
            text = f"the line at byte {offset - shift} ({size} bytes) is no record: it is left out"
            yield Problem(stream, None, text)
        if log.torn_bytes:
            text = f"the last {log.torn_bytes} bytes of its file were never committed: left out"
            yield Problem(stream, None, text)


def entries_lost(feed: Feed, log: Log) -> Iterator[Problem]:
    """Yield one problem for each range of acknowledged entries that are missing."""
    stream = log.header.id
    for lost in feed.lost(stream, log.head):
        text = "it was acknowledged and is gone from the session's file"
        if len(lost) > 1:
            which = f"entries {lost[0]} to {lost[-1]}"
            text = f"{which} were acknowledged and are gone from the session's file"
        yield Problem(stream, lost[0], text)
