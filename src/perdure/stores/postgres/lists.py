"""Data for lists, and the open entries, updated in the transaction that changes the log."""

from __future__ import annotations

import hashlib
from typing import LiteralString

from perdure.session.info import SessionInfo
from perdure.session.memory.open_entries import CLOSING, OPEN_KINDS, OPENING
from perdure.stores.postgres.database import Statement
from perdure.stores.postgres.names import listed_changed, listed_new
from perdure.stores.postgres.row_builder import Share
from perdure.stores.postgres.rows import Stream

_LIST: LiteralString = """
UPDATE perdure.stream SET folder = %s, is_active = %s, created_at = %s
WHERE namespace = %s AND id = %s
"""

_ASK: LiteralString = "INSERT INTO perdure.open_question VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"

_CLOSE: LiteralString = """
DELETE FROM perdure.open_question WHERE namespace = %s AND stream = %s AND seq = %s
"""

_FORGET: LiteralString = """
DELETE FROM perdure.open_question WHERE namespace = %s AND stream = %s AND seq BETWEEN %s AND %s
"""

_OPEN_KINDS = frozenset(OPEN_KINDS)


def folder_key(cwd: str | None) -> bytes | None:
    """Return the index key of a folder: PostgreSQL cannot store, or index, every text."""
    if cwd is None:
        return None
    return hashlib.sha256(cwd.encode("utf-8", "surrogatepass")).digest()[:16]


def listing(namespace: str, stream: Stream) -> Statement:
    """Return the statement that updates the list row of the stream."""
    info = stream.state.info
    values = (*_place(info), info.created_at, namespace, info.id)
    return Statement(_LIST, values)


def first_listing(namespace: str, stream: Stream) -> list[Statement]:
    """Return the statements that add a new stream and its name parts to the lists."""
    return [listing(namespace, stream), *listed_new(namespace, stream.state.info)]


def kept_beside(namespace: str, share: Share) -> list[Statement]:
    """Return the statements for changes of `share` to lists and open entries; mostly none."""
    after = share.after
    moved = _place(share.before.state.info) != _place(after.state.info)
    found = [listing(namespace, after)] if moved else []
    found += listed_changed(namespace, share.before.state.info, after.state.info)
    if _OPEN_KINDS.isdisjoint(share.columns.kinds):
        return found
    stream = after.state.header.id
    for entry in share.entries:
        if entry.kind in OPENING and entry.lane == "side" and not entry.is_erased:
            found.append(Statement(_ASK, (namespace, stream, entry.seq)))
        elif entry.kind in CLOSING and (entry.about or "").startswith(f"{stream}/"):
            seq = int((entry.about or "").rpartition("/")[2])
            found.append(Statement(_CLOSE, (namespace, stream, seq)))
    return found


def forgetting(namespace: str, stream: str, seqs: tuple[int, int]) -> Statement:
    """Return the statement that removes erased entries from the open ones."""
    return Statement(_FORGET, (namespace, stream, *seqs))


def _place(info: SessionInfo) -> tuple[bytes | None, bool]:
    return folder_key(info.cwd), info.status == "active"
