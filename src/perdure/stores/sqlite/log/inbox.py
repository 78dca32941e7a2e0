"""Track the entries that wait for another entry, in the transaction that appends one of them."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.session.entries import Entry
from perdure.session.memory.open_entries import CLOSING, OPENING
from perdure.stores.sqlite.rows import Stream, Tables

_ASK = "INSERT OR IGNORE INTO open_question VALUES (?, ?, ?)"

_CLOSE = "DELETE FROM open_question WHERE namespace = ? AND stream = ? AND seq = ?"


def note_open_entries(tables: Tables, stream: Stream, entries: Iterable[Entry]) -> None:
    """Update the open entries of the stream after `entries` were appended."""
    own = stream.state.header.id + "/"
    for entry in entries:
        if entry.kind in OPENING and entry.lane == "side" and not entry.is_erased:
            tables.run(_ASK, (stream.namespace, stream.no, entry.seq))
        elif entry.kind in CLOSING and entry.about is not None and entry.about.startswith(own):
            seq = int(entry.about[len(own) :])
            tables.run(_CLOSE, (stream.namespace, stream.no, seq))
