"""Run or resume an erasure in steps, so that other processes can write in between.

After a kill, the next process that opens the file continues the erasure, for any namespace.
"""

from __future__ import annotations

from perdure.session.clock import Clock
from perdure.stores.protocol import Durability
from perdure.stores.retention import copies
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.sqlite.database import Database
from perdure.stores.sqlite.maintenance.content_gc import find_unreferenced, in_batches
from perdure.stores.sqlite.rekey_copy import remove_dead_copy
from perdure.stores.sqlite.retention import erase_steps
from perdure.stores.sqlite.retention.erase_records import (
    Open,
    backups_of,
    certificate_with,
    names_of,
    open_erasures,
)


async def certificate_after(
    database: Database, namespace: str, request: EraseRequest, begun: Certificate
) -> Certificate:
    """Return the certificate of an ended erasure.

    `begun` is the certificate that the erasure had at its beginning.
    """
    kept = await database.read(lambda tables: certificate_with(tables, namespace, begun.id))
    return copies.with_file_names(kept, begun) if kept.id == request.id else kept


async def go_on(database: Database, durability: Durability, clock: Clock) -> None:
    """Finish the erasures that this process or a killed process began."""
    for erasure in await database.read(open_erasures):
        await _finish(database, erasure, durability, clock)


async def _finish(database: Database, erasure: Open, durability: Durability, clock: Clock) -> None:
    while await database.write(lambda tables: erase_steps.advance(tables, erasure), durability):
        pass
    names = await database.read(lambda tables: names_of(tables, erasure.no))
    if names:
        found = await database.read(lambda tables: find_unreferenced(tables, erasure.name, names))
        for part in in_batches(found.blobs):
            await database.write(
                lambda tables, part=part: erase_steps.remove_contents(tables, erasure, found, part),
                durability,
            )
    backups = await database.read(backups_of)
    left = (*copies.backed_up(backups), *copies.of_files("the file"))
    at = clock.now_ms()
    await database.write(lambda tables: erase_steps.finish(tables, erasure, at, left), durability)
    remove_dead_copy(database.path)  # of a killed rekey: it has all data
    is_empty = erasure.is_removal or await database.truncate_log()
    last = erase_steps.seal if is_empty else erase_steps.leave
    await database.write(lambda tables: last(tables, erasure), durability)
