"""Delete unreferenced contents and free database pages, in small transactions.

First a reader scans the whole namespace for content names. Then the writer deletes, in batches, the
contents that the scan did not find, and checks the new entries before each batch. A commit that
references a deleted content also stores the content again. So a referenced content still exists
after a commit and a vacuum, whichever runs first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.stores.sqlite.rows import Tables, namespace_no

BATCH = 64
"""Maximum number of contents deleted per transaction."""

STEP_PAGES = 1_000
"""Maximum number of pages freed per transaction (4 MB)."""

NAME = re.compile(rb"sha256-[0-9a-f]{64}")
"""The pattern of a content's name in a reference."""

_BODIES_AFTER = """
SELECT e.body FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
WHERE e.n > ? AND s.namespace = ?
"""

_HEADERS = """
SELECT b.header FROM stream AS s CROSS JOIN birth AS b ON b.stream = s.no WHERE s.namespace = ?
"""

_PARTIALS = """
SELECT p.content FROM stream AS s CROSS JOIN partial AS p ON p.stream = s.no WHERE s.namespace = ?
"""

_REMOVE = "DELETE FROM blob WHERE no = ? AND digest = ? RETURNING size"


class Blob(NamedTuple):
    """A content: its number, name and size."""

    no: int
    digest: str
    size: int


class UnreferencedContents(NamedTuple):
    """Contents of a namespace that no entry up to the position `upto` references."""

    namespace: int
    upto: int
    blobs: tuple[Blob, ...]


def find_unreferenced(
    tables: Tables, namespace: str, among: Collection[str] | None = None
) -> UnreferencedContents:
    """Return the contents that `remove` is allowed to delete.

    If `among` is given, check only the contents in `among`.

    The search for references reads every body of the namespace, unless there are no contents to
    check.
    """
    number = int(namespace_no(tables, namespace) or 0)
    rows = tables.rows("SELECT no, digest, size FROM blob WHERE namespace = ?", number)
    blobs = {blob.digest: blob for blob in (Blob(*row) for row in rows)}
    if among is not None:
        blobs = {digest: blob for digest, blob in blobs.items() if digest in among}
    upto = int(tables.value("SELECT coalesce(max(n), 0) FROM entry"))
    if blobs:
        _leave_out(blobs, _texts(tables, number, after=0))
    return UnreferencedContents(number, upto, tuple(blobs.values()))


def remove(found: UnreferencedContents, part: Sequence[Blob], tables: Tables) -> list[int]:
    """Delete the contents in the batch `part` that are still unreferenced; return their sizes.

    The caller has begun a transaction.
    """
    blobs = {blob.digest: blob for blob in part}
    _leave_out(blobs, _texts(tables, found.namespace, after=found.upto))
    removed = [tables.value(_REMOVE, blob.no, blob.digest) for blob in blobs.values()]
    return [size for size in removed if size is not None]  # others may have deleted some by now


def give_back(tables: Tables) -> int:
    """Free some pages at the file's end, in the caller's transaction; return the freed bytes."""
    before = tables.value("PRAGMA freelist_count")
    if before == 0:
        return 0
    tables.run(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()
    pages = before - tables.value("PRAGMA freelist_count")
    return int(pages * tables.value("PRAGMA page_size"))


def in_batches(blobs: Sequence[Blob]) -> Iterator[Sequence[Blob]]:
    """Yield `blobs` in batches, each deleted in one transaction."""
    return (blobs[at : at + BATCH] for at in range(0, len(blobs), BATCH))


def _texts(tables: Tables, namespace: int, *, after: int) -> Iterator[bytes]:
    """Yield texts that may name contents: entries after `after`, headers, partial answers."""
    for sql, values in (
        (_BODIES_AFTER, (after, namespace)),
        (_HEADERS, (namespace,)),
        (_PARTIALS, (namespace,)),
    ):
        for row in tables.rows(sql, *values):
            yield row[0]


def _leave_out(blobs: dict[str, Blob], texts: Iterable[bytes]) -> None:
    """Remove from `blobs` every content that one of `texts` references."""
    for text in texts:
        for name in NAME.findall(text):
            blobs.pop(name.decode(), None)
