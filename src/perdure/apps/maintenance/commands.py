"""``perdure store vacuum`` and ``migrate``."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated, cast

import msgspec
import typer

from perdure.apps.cli.options import JsonOption, StoreOption
from perdure.apps.cli.store_options import CommonOptions, existing_address
from perdure.apps.maintenance.whole_store import place_of, present_keys, upkeep_of_sqlite
from perdure.apps.store_access import writable_store
from perdure.apps.terminal.output import count_of, show_result, size
from perdure.apps.terminal.text import safe
from perdure.client.lookup.store_files import address_or_default
from perdure.client.routes import one_database
from perdure.stores.maintenance.protocol import MigrationPlan


async def vacuum(*, common: CommonOptions) -> None:
    """Remove media and import originals that nothing refers to, and free space.

    Entries do not change. Other processes can use the store during the command.

    Examples:
        perdure store vacuum
    """
    async with common.existing_store() as opened:
        done = await opened.backend.maintenance.vacuum()
    removed = f"removed {count_of(done.blobs, 'unused content')}, {size(done.blob_bytes)}"
    common.show(done, (removed, f"gave {size(done.freed_bytes)} back"))


async def planned_migration(
    address: str | None = None, *, key: bytes | str | None = None
) -> MigrationPlan:
    """Run the migration that opening the store would run, and roll it back.

    Raises: the errors of `perdure.open`; Unsupported for stores without schemas.
    Raises: ConfigError for a file of routes, because such a file names several databases.
    """
    address = one_database(address_or_default(address, os.environ, sys.platform))
    if address.partition(":")[0] in ("postgres", "postgresql"):
        server = importlib.import_module("perdure.stores.postgres.maintenance.migration_rehearsal")
        return cast("MigrationPlan", await server.rehearse_migration(address))
    address, path = place_of(address, "migrations")
    keys = await present_keys(address, path, key)
    rehearse = upkeep_of_sqlite("migration_rehearsal").rehearse_migration
    return await asyncio.to_thread(rehearse, path, keys[0])


async def migrate(
    *,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run the migration as a test, and roll it back.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Migrate the store to the schema of this version.

    Every other command also migrates the store when it opens the store.

    Examples:
        perdure store migrate --dry-run  # try the migration and roll it back
        perdure store migrate
    """
    address = existing_address(store)

    plan = await planned_migration(address)
    if not is_dry_run:
        async with writable_store(address):
            pass
    data = {**msgspec.structs.asdict(plan), "is_done": not is_dry_run}
    show_result(data, _plan_lines(plan, is_dry_run=is_dry_run), as_json=as_json)


def _plan_lines(plan: MigrationPlan, *, is_dry_run: bool) -> Iterator[str]:
    if not plan.steps:
        yield f"{safe(plan.store)} has schema {plan.current}, the newest: nothing to do"
        return
    verb = "would be migrated" if is_dry_run else "was migrated"
    yield f"{safe(plan.store)} {verb} from schema {plan.current} to {plan.latest}"
    for step in plan.steps:
        yield f"  {safe(step)}"
    if is_dry_run:
        yield "Every step was tried and rolled back: nothing was changed."
