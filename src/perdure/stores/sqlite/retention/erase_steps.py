"""Run the later steps of an erasure, each in a small transaction, so a kill can interrupt it.

The table ``erasing`` is the work list. A step does part of the work and removes this part from the
list in the same transaction. So a process that resumes an erasure after a kill does only the
remaining work and counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.stores.access.collector import collector_paused
from perdure.stores.retention.erase import Copy
from perdure.stores.sqlite.maintenance.content_gc import NAME, Blob, UnreferencedContents, remove
from perdure.stores.sqlite.retention.erase_plan import kept_kinds
from perdure.stores.sqlite.retention.erase_records import Open, certificate_of, keep
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.search.search_index import forget

BATCH_ENTRIES = 256
BATCH_BYTES = 2**20
"""Maximum size erased per transaction; a larger body is erased alone."""

_NEXT = """
SELECT no, stream, first, last, is_sweep FROM erasing WHERE erasure = ? ORDER BY no LIMIT 1
"""

_BODIES = "SELECT seq, body FROM entry WHERE stream = ? AND seq BETWEEN ? AND ? ORDER BY seq"

_POSITIONS = "SELECT n FROM entry WHERE stream = ? AND seq BETWEEN ? AND ? ORDER BY seq"

_KEEP_NAME = "INSERT OR IGNORE INTO erasing_content VALUES (?, ?)"

# An entry of these kinds left a state of its own.
_DELETE_STATES = """
DELETE FROM state WHERE no = (SELECT state FROM entry WHERE n = ? AND kind IN ({kinds}))
"""

LOG = Copy(
    "log", "the write-ahead log beside the file: another program reads an older moment of it"
)

_FORGET_OPEN = """
DELETE FROM open_question WHERE namespace = ? AND stream = ? AND seq BETWEEN ? AND ?
"""

_DELETE_ALIASES = "DELETE FROM alias WHERE stream = ? AND seq BETWEEN ? AND ?"


class _Task(NamedTuple):
    no: int
    stream: int
    first: int
    last: int
    is_sweep: bool


def advance(tables: Tables, erasure: Open) -> bool:
    """Do a part of the remaining work; return False if no work was left."""
    row = tables.row(_NEXT, erasure.no)
    if row is None or certificate_of(tables, erasure) is None:
        return False
    task = _Task(*row)
    if task.is_sweep:
        _sweep(tables, task)
    else:
        _erase_some(tables, erasure, task)
    return True


def _erase_some(tables: Tables, erasure: Open, task: _Task) -> None:
    last = _batch(tables, erasure.no, task)
    place = (task.stream, task.first, last)
    owner = tables.value("SELECT namespace FROM stream WHERE no = ?", task.stream)
    texts = forget(tables, owner, [row[0] for row in tables.rows(_POSITIONS, *place)])
    tables.run(
        "UPDATE entry SET salt = NULL, body = x'' WHERE stream = ? AND seq BETWEEN ? AND ?"  # noqa: S608 - numbers only
        f" AND kind NOT IN ({kept_kinds(tables)})",
        place,
    )
    tables.run(_FORGET_OPEN, (owner, *place))
    tables.run(_DELETE_ALIASES, place)
    aliases = int(tables.value("SELECT changes()"))
    if last < task.last:
        tables.run("UPDATE erasing SET first = ? WHERE no = ?", (last + 1, task.no))
    else:
        tables.run("DELETE FROM erasing WHERE no = ?", (task.no,))
    certificate = certificate_of(tables, erasure)
    if certificate is not None and (texts or aliases):
        removed = certificate.removed.plus(texts=texts, foreign_ids=aliases)
        keep(tables, erasure.no, msgspec.structs.replace(certificate, removed=removed))


def _batch(tables: Tables, erasure: int, task: _Task) -> int:
    """Return the last seq of the next batch, and record the contents that its bodies reference."""
    end = min(task.last, task.first + BATCH_ENTRIES - 1)
    last, size = task.first, 0
    for seq, body in tables.rows(_BODIES, task.stream, task.first, end):
        size += len(body)
        if seq > task.first and size > BATCH_BYTES:
            return last
        for name in NAME.findall(body):
            tables.run(_KEEP_NAME, (erasure, name.decode()))
        last = seq
    return end


def _sweep(tables: Tables, task: _Task) -> None:
    """Delete rows of an erased stream, starting at its end; finally delete the stream itself."""
    # Removed from every namespace first, so that no reader sees half of it.
    tables.run("UPDATE stream SET namespace = -no WHERE no = ? AND namespace > 0", (task.stream,))
    if tables.value("SELECT changes()"):
        tables.run("UPDATE removed SET streams = streams + 1")
    tables.run(
        "UPDATE removed SET position = max(position, (SELECT coalesce(max(n), 0) FROM entry))"
    )
    rows = list(
        tables.rows(
            "SELECT n FROM entry WHERE stream = ? ORDER BY seq DESC LIMIT ?",
            task.stream,
            BATCH_ENTRIES * 4,
        )
    )
    tables.run_many("DELETE FROM commits WHERE first = ?", rows)
    tables.run_many(_DELETE_STATES.format(kinds=_inherited_kinds(tables)), rows)
    tables.run_many("DELETE FROM entry WHERE n = ?", rows)
    if not rows:
        for table in ("alias", "partial", "birth"):
            tables.run(f"DELETE FROM {table} WHERE stream = ?", (task.stream,))  # noqa: S608 - names of tables, see above
        tables.run("DELETE FROM stream WHERE no = ?", (task.stream,))
        tables.run("DELETE FROM erasing WHERE no = ?", (task.no,))
    tables.forget()


def remove_contents(
    tables: Tables, erasure: Open, found: UnreferencedContents, part: Sequence[Blob]
) -> None:
    """Delete the contents in the batch `part` that are unreferenced, and count them."""
    certificate = certificate_of(tables, erasure)
    sizes = [] if certificate is None else remove(found, part, tables)
    if certificate is not None and sizes:
        removed = certificate.removed.plus(contents=len(sizes), content_bytes=sum(sizes))
        keep(tables, erasure.no, msgspec.structs.replace(certificate, removed=removed))


def _inherited_kinds(tables: Tables) -> str:
    kinds = (Compaction.kind, ModelChange.kind, ThinkingChange.kind)
    return ", ".join(str(tables.kind_number(kind) or -1) for kind in kinds)


@collector_paused()
def finish(tables: Tables, erasure: Open, at: int, copies: tuple[Copy, ...]) -> None:
    """Record the end time and the possible `copies`, after all erased data has left the tables."""
    certificate = certificate_of(tables, erasure)
    if certificate is None or certificate.finished_at is not None:
        return
    copies = (*certificate.copies, *copies)
    done = msgspec.structs.replace(certificate, finished_at=at, copies=copies)
    keep(tables, erasure.no, done)
    tables.run("DELETE FROM erasing_content WHERE erasure = ?", (erasure.no,))


@collector_paused()
def seal(tables: Tables, erasure: Open) -> None:
    """Mark the erasure complete, after all erased data has left the write-ahead log."""
    if erasure.is_removal:
        tables.run("DELETE FROM erasure WHERE no = ? AND id = ?", (erasure.no, erasure.id))
        return
    certificate = certificate_of(tables, erasure)
    if certificate is not None:
        copies = tuple(copy for copy in certificate.copies if copy != LOG)
        done = msgspec.structs.replace(certificate, is_complete=True, copies=copies)
        keep(tables, erasure.no, done)
        tables.run("UPDATE erasure SET is_done = 1 WHERE no = ?", (erasure.no,))


@collector_paused()
def leave(tables: Tables, erasure: Open) -> None:
    """Record that a reader of an older snapshot prevents emptying the log."""
    certificate = certificate_of(tables, erasure)
    if certificate is not None and LOG not in certificate.copies:
        copies = (*certificate.copies, LOG)
        keep(tables, erasure.no, msgspec.structs.replace(certificate, copies=copies))
