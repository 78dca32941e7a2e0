"""Find the streams that commits wrote to since the last poll, for the watcher thread."""

from __future__ import annotations

from collections.abc import Collection

from perdure.session.ids import StreamId
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.wakeups import Place

_NEWEST = """
SELECT (SELECT max(n) FROM entry), (SELECT max(no) FROM stream), (SELECT streams FROM removed)
"""

# The streams of new entries, and new streams, which may have no entries.
_WRITTEN = """
SELECT a.name, s.id FROM stream AS s JOIN namespace AS a ON a.no = s.namespace
WHERE s.no IN (SELECT stream FROM entry WHERE n > ? AND n <= ?) OR (s.no > ? AND s.no <= ?)
"""


class CommitLook:
    """Polls a database; each call returns the streams written since the previous call.

    The first call returns no streams.
    """

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._version: object = None
        self._entry = self._stream = self._removed = 0

    def __call__(self, _since_s: float) -> Collection[Place] | None:
        version = self._db.pragma("data_version")
        if version == self._version:
            return ()
        is_first, self._version = self._version is None, version
        entry, stream, removed = (value or 0 for value in self._db.execute(_NEWEST).fetchall()[0])
        known = (self._entry, entry, self._stream, stream)
        is_removed = removed != self._removed
        # A removal may delete the newest entries; their positions are never reused.
        self._entry, self._stream = max(entry, self._entry), max(stream, self._stream)
        self._removed = removed
        if is_first:
            return ()
        if is_removed:
            return None
        return [(name, StreamId(id_)) for name, id_ in self._db.execute(_WRITTEN, known).fetchall()]
