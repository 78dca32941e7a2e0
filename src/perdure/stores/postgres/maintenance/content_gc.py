"""Contents that nothing refers to are removed, in small transactions, while others write.

First a reader looks through the namespace for names of contents, up to where no commit can appear
any more. Then what it did not find is removed in parts, each time after looking at what came since,
while nobody adds contents: a commit that refers to one again brings it along, and whoever comes
first, it is there afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import LiteralString

from perdure.stores.postgres.database import Database, Statement, run_statements
from perdure.stores.postgres.retention.erase import LOCK_CONTENTS
from perdure.stores.postgres.retention.quotas import counting
from perdure.stores.postgres.rows import Texts
from perdure.stores.postgres.usage import resetting

BATCH = 64
"""Contents removed in one transaction."""

_HORIZON: LiteralString = "SELECT current_setting('perdure.horizon')::bigint"

_SETTLE: LiteralString = "SELECT perdure.settle(0)"

_NAMED: LiteralString = """
SELECT DISTINCT m[1] AS digest FROM (
    SELECT body AS text FROM perdure.entry WHERE namespace = %s AND n > %s AND n <= %s
    UNION ALL SELECT header FROM perdure.birth WHERE namespace = %s
    UNION ALL SELECT content FROM perdure.partial WHERE namespace = %s
) AS texts, regexp_matches(encode(text, 'escape'), '(sha256-[0-9a-f]{64})', 'g') AS m
WHERE position('sha256-'::bytea IN text) > 0
"""

_UNNAMED: LiteralString = f"""
SELECT digest FROM perdure.blob
WHERE namespace = %s AND digest NOT IN ({_NAMED}) ORDER BY digest
"""  # noqa: S608 - put together from constants

_REMOVE: LiteralString = f"""
WITH gone AS (
    DELETE FROM perdure.blob
    WHERE namespace = %s AND digest = ANY(%s) AND digest NOT IN ({_NAMED}) RETURNING size
) SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone
"""  # noqa: S608 - put together from constants

_LAST = 2**63 - 1


async def remove_unreferenced(db: Database) -> tuple[int, int]:
    """Remove what nothing in the namespace refers to; how many contents, of how many bytes.

    Durable: each part by itself; killed, the next call goes on.
    """
    upto, unnamed = await _find_unreferenced(db)
    removed = removed_bytes = 0
    for part in _in_batches(unnamed):
        count, size = await _remove(db, part, upto)
        removed, removed_bytes = removed + count, removed_bytes + size
    return removed, removed_bytes


async def _find_unreferenced(db: Database) -> tuple[int, list[str]]:
    """Contents that nothing refers to up to a position, and that position."""
    ns = db.namespace
    async with db.connection() as connected, connected.transaction():
        settle = Statement(_SETTLE)
        _, ((upto,),) = await run_statements(connected, ns, [settle, Statement(_HORIZON)])
        found = Statement(_UNNAMED, (ns, ns, 0, upto, ns, ns))
        (rows,) = await run_statements(connected, ns, [found])
    return upto, [row[0] for row in rows]


async def _remove(db: Database, part: Sequence[str], upto: int) -> tuple[int, int]:
    ns = db.namespace
    async with db.connection() as connected, connected.transaction():
        removing = Statement(_REMOVE, (ns, Texts(part), ns, upto, _LAST, ns, ns))
        _, ((count, size),) = await run_statements(
            connected, ns, [Statement(LOCK_CONTENTS), removing]
        )
        await run_statements(connected, ns, [counting(ns, size=-size), resetting(ns)])
    return count, size


def _in_batches(digests: Sequence[str]) -> Iterator[Sequence[str]]:
    return (digests[at : at + BATCH] for at in range(0, len(digests), BATCH))
