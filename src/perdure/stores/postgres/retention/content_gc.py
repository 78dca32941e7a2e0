"""Remove unreferenced contents while other processes write.

First, a reader scans the entries of the namespace for names of contents. The scan ends at a
position before which no new commit can appear. After the scan, a lock prevents commits from adding
contents. Under the lock, the newer entries are scanned, and the contents that are still
unreferenced are removed. A commit that references a removed content again also stores that content
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import LiteralString

from perdure.stores.postgres.database import Connected, Database, Statement, run_statements
from perdure.stores.postgres.retention.quotas import counting
from perdure.stores.postgres.retention.usage import resetting
from perdure.stores.postgres.rows import HORIZON, SETTLE, Texts

BATCH = 64
"""Maximum number of contents removed per transaction."""

_NAMED: LiteralString = """
SELECT DISTINCT m[1] AS digest FROM (
    SELECT body AS text FROM perdure.entry
    WHERE namespace = %s AND n > 0 AND n > %s AND n <= %s
    UNION ALL SELECT header FROM perdure.birth
    WHERE namespace = %s AND n > 0 AND n > %s AND n <= %s
    UNION ALL SELECT content FROM perdure.partial WHERE namespace = %s
) AS texts, regexp_matches(encode(text, 'escape'), '(sha256-[0-9a-f]{64})', 'g') AS m
WHERE position('sha256-'::bytea IN text) > 0
"""

_UNNAMED: LiteralString = f"""
SELECT digest FROM perdure.blob
WHERE namespace = %s AND (%s OR digest = ANY(%s)) AND digest NOT IN ({_NAMED}) ORDER BY digest
"""  # noqa: S608 - put together from constants

# A commit with contents waits until this transaction ends, and adds its own contents again.
_LOCK: LiteralString = "LOCK TABLE perdure.blob IN SHARE ROW EXCLUSIVE MODE"

_REMOVE: LiteralString = f"""
WITH gone AS (
    DELETE FROM perdure.blob
    WHERE namespace = %s AND digest = ANY(%s) AND digest NOT IN ({_NAMED}) RETURNING size
) SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone
"""  # noqa: S608 - put together from constants

_LAST = 2**63 - 1


async def remove_unreferenced(db: Database) -> tuple[int, int]:
    """Remove unreferenced contents of the namespace; return their number and total bytes.

    Durable: each batch is durable by itself; after a kill, the next call continues.
    """
    ns = db.namespace
    async with db.connection() as connected, connected.transaction():
        upto, unnamed = await _find_unreferenced(connected, ns, None)
    removed = removed_bytes = 0
    for part in _in_batches(unnamed):
        async with db.connection() as connected, connected.transaction():
            count, size = await _remove(connected, ns, part, upto)
            await run_statements(connected, ns, [counting(ns, size=-size), resetting(ns)])
        removed, removed_bytes = removed + count, removed_bytes + size
    return removed, removed_bytes


async def remove_unreferenced_of(db: Connected, namespace: str, names: set[str]) -> tuple[int, int]:
    """Remove the unreferenced contents among `names`, in the transaction of `db`.

    Returns the number of removed contents and their total bytes.
    """
    if not names:
        return 0, 0
    upto, unnamed = await _find_unreferenced(db, namespace, names)
    return await _remove(db, namespace, unnamed, upto) if unnamed else (0, 0)


async def _find_unreferenced(
    db: Connected, ns: str, names: set[str] | None
) -> tuple[int, list[str]]:
    """Return a position, and the contents that no entry up to that position references.

    With `names`, only the contents with these names are checked.
    """
    _, ((upto,),) = await run_statements(db, ns, [Statement(SETTLE), Statement(HORIZON)])
    values = (ns, names is None, Texts(sorted(names or ())), *_between(ns, 0, upto))
    (rows,) = await run_statements(db, ns, [Statement(_UNNAMED, values)])
    return upto, [row[0] for row in rows]


async def _remove(db: Connected, ns: str, part: Sequence[str], after: int) -> tuple[int, int]:
    removing = Statement(_REMOVE, (ns, Texts(part), *_between(ns, after, _LAST)))
    _, ((count, size),) = await run_statements(db, ns, [Statement(_LOCK), removing])
    return count, size


def _between(ns: str, after: int, upto: int) -> tuple[object, ...]:
    return (ns, after, upto, ns, after, upto, ns)


def _in_batches(digests: Sequence[str]) -> Iterator[Sequence[str]]:
    return (digests[at : at + BATCH] for at in range(0, len(digests), BATCH))
