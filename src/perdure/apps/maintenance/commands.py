"""``perdure store vacuum`` and ``migrate``, and where the commands beside them are made known."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.options import JsonOption, NamespaceOption, StoreOption, run
from perdure.apps.maintenance.backup import backup, restore
from perdure.apps.maintenance.copy import copy
from perdure.apps.maintenance.rekey import existing_address, rekey
from perdure.apps.maintenance.repair import repair
from perdure.apps.maintenance.stats import stats
from perdure.apps.maintenance.trust import trust
from perdure.apps.store_access import NAMESPACE, writable_store
from perdure.apps.terminal.output import count_of, show, show_json, size
from perdure.apps.terminal.text import safe
from perdure.client.maintenance.whole_store import planned_migration
from perdure.client.maintenance.whole_store import vacuum as vacuumed
from perdure.stores.maintenance.protocol import MigrationPlan


def add_to(store_commands: typer.Typer) -> None:
    """Make the commands known."""
    store_commands.command("rekey")(rekey)
    store_commands.command("vacuum")(vacuum)
    store_commands.command("migrate")(migrate)
    store_commands.command("copy")(copy)
    store_commands.command("backup")(backup)
    store_commands.command("restore")(restore)
    store_commands.command("repair")(repair)
    store_commands.command("stats")(stats)
    store_commands.command("trust")(trust)


def vacuum(
    *,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Remove media and import originals that nothing refers to, and free space.

    No entry changes. Other processes can use the store meanwhile.

    Examples:
        perdure store vacuum
    """
    address = existing_address(store)

    async def work() -> None:
        async with writable_store(address, namespace) as opened:
            done = await vacuumed(opened)
        if as_json:
            show_json(msgspec.structs.asdict(done))
            return
        show(f"removed {count_of(done.blobs, 'unused content')}, {size(done.blob_bytes)}")
        show(f"gave {size(done.freed_bytes)} back")

    return run(work)


def migrate(
    *,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Try the migration and roll it back.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> int:
    """Migrate the store to the schema of this version, as every command does on opening it.

    Examples:
        perdure store migrate --dry-run  # try the migration and roll it back
        perdure store migrate
    """
    address = existing_address(store)

    async def work() -> None:
        plan = await planned_migration(address)
        if not is_dry_run:
            async with writable_store(address):
                pass
        if as_json:
            show_json({**msgspec.structs.asdict(plan), "is_done": not is_dry_run})
        else:
            _tell(plan, is_dry_run=is_dry_run)

    return run(work)


def _tell(plan: MigrationPlan, *, is_dry_run: bool) -> None:
    if not plan.steps:
        show(f"{safe(plan.store)} has schema {plan.current}, the newest: nothing to do")
        return
    verb = "would go" if is_dry_run else "went"
    show(f"{safe(plan.store)} {verb} from schema {plan.current} to {plan.latest}")
    for step in plan.steps:
        show(f"  {safe(step)}")
    if is_dry_run:
        show("Every step was tried and rolled back: nothing was changed.")
