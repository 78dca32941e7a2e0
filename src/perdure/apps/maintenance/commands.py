"""``perdure store vacuum`` and ``migrate``, and where the commands beside them are made known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import DONE, FAILED
from perdure.apps.cli.options import JsonOption, StoreOption
from perdure.apps.cli.store_options import CommonOptions, existing_address
from perdure.apps.maintenance.backup import backup, restore
from perdure.apps.maintenance.copy import copy
from perdure.apps.maintenance.rekey import rekey
from perdure.apps.maintenance.trust import TrustOption, trust, trust_store
from perdure.apps.progress import progress_bar
from perdure.apps.store_access import existing_store, writable_store
from perdure.apps.terminal.advice import with_commands
from perdure.apps.terminal.output import count_of, out_style, show, show_json, size
from perdure.apps.terminal.text import one_line, safe
from perdure.client.maintenance.repair import RepairReport
from perdure.client.maintenance.repair import repair as repaired
from perdure.client.maintenance.stats import figures
from perdure.client.maintenance.whole_store import planned_migration
from perdure.client.maintenance.whole_store import vacuum as vacuumed
from perdure.stores.maintenance.protocol import MigrationPlan
from perdure.stores.maintenance.stats import DAYS, FileFigures, NamespaceFigures, StoreFigures


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


async def vacuum(*, common: CommonOptions) -> None:
    """Remove media and import originals that nothing refers to, and free space.

    No entry changes. Other processes can use the store meanwhile.

    Examples:
        perdure store vacuum
    """
    address = existing_address(common.store)

    async with writable_store(address, common.namespace) as opened:
        done = await vacuumed(opened)
    if common.as_json:
        show_json(msgspec.structs.asdict(done))
        return
    show(f"removed {count_of(done.blobs, 'unused content')}, {size(done.blob_bytes)}")
    show(f"gave {size(done.freed_bytes)} back")


async def migrate(
    *,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Try the migration and roll it back.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Migrate the store to the schema of this version, as every command does on opening it.

    Examples:
        perdure store migrate --dry-run  # try the migration and roll it back
        perdure store migrate
    """
    address = existing_address(store)

    plan = await planned_migration(address)
    if not is_dry_run:
        async with writable_store(address):
            pass
    if as_json:
        show_json({**msgspec.structs.asdict(plan), "is_done": not is_dry_run})
    else:
        _tell(plan, is_dry_run=is_dry_run)


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


async def repair(
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="ADDRESS",
            help="Write the repaired store to this new SQLite file or empty PostgreSQL database. "
            "Required unless the damaged store is an SQLite file.",
        ),
    ] = None,
    is_trusting: TrustOption = False,
    common: CommonOptions,
) -> int:
    """Repair a damaged store: keep every readable entry, and list what is lost.

    An SQLite file is repaired in its place, and the damaged file is moved to the folder
    NAME-damaged. With --to, the damaged store stays unchanged. A PostgreSQL store and session files
    need --to, and each run repairs one namespace of them. A store without damage stays unchanged.

    Examples:
        perdure store repair --store sqlite:///agents.db
        perdure store repair --store postgresql://me@host/agents --to sqlite:///repaired.db
        perdure store repair --store jsonl:///sessions --to sqlite:///repaired.db

    Exit codes:
        1  something was lost
    """
    address = existing_address(common.store)

    bar = progress_bar("repair")
    done = await repaired(address, to=to, namespace=common.namespace, on_progress=bar)
    if is_trusting:
        await trust_store(to or address, common.namespace)
    common.show(msgspec.structs.asdict(done), _repair_lines(done))
    return FAILED if done.losses else DONE


def _repair_lines(done: RepairReport) -> Iterator[str]:
    style = out_style()
    if not done.is_damaged:
        ok = style.paint("ok", "good")
        yield f"{ok}  nothing is wrong with {safe(done.store)}; it was left alone"
        return
    kept = count_of(done.entries, "entry", "entries")
    yield f"{safe(done.store)} is whole again: {kept} in {count_of(done.streams, 'log')}"
    for loss in done.losses:
        place = "/".join(str(part) for part in (loss.stream, loss.seq) if part is not None)
        problem = safe(with_commands(loss.problem))
        yield f"  {style.paint('lost', 'bad')}  {safe(place or 'store')}: {problem}"
    if not done.losses:
        yield "Nothing was lost."
    if done.changed:
        names = ", ".join(safe(name) for name in done.changed)
        yield f"The hashes of {names} are others now, from the first lost entry on."
    if done.aside is not None:
        yield f"The damaged store is now in {safe(done.aside)}, with a report."


_NAME_CELLS = 40
_SHOWN_DAYS = 7


async def stats(
    *,
    days: Annotated[
        int, typer.Option("--days", min=1, max=3650, help="The number of days of growth to show.")
    ] = DAYS,
    common: CommonOptions,
) -> None:
    """Show the size of the namespace, its largest sessions, its growth, and the use of space.

    The sizes of an SQLite file are those of all its namespaces together.

    Examples:
        perdure store stats --json
    """
    address = existing_address(common.store)

    async with existing_store(address, common.namespace) as opened:
        found = await figures(opened, days=days)
    common.show(msgspec.to_builtins(found), _stats_lines(found))


def _stats_lines(found: StoreFigures) -> Iterator[str]:
    yield safe(found.address)
    if found.file is not None:
        yield from _file_lines(found.file)
    for each in found.namespaces:
        yield ""
        yield from _namespace_lines(each)


def _file_lines(file: FileFigures) -> Iterator[str]:
    yield (
        f"  {size(file.file)}: log {size(file.tables)}, its indexes {size(file.indexes)}, "
        f"search {size(file.search)}, free {size(file.free)}; write-ahead log {size(file.log)}"
    )


def _namespace_lines(found: NamespaceFigures) -> Iterator[str]:
    style = out_style()
    yield style.paint(f"namespace {safe(found.namespace)}", "faint")
    parts = [count_of(found.sessions, "session")]
    parts += [count_of(found.flows, "flow")] if found.flows else []
    parts += [f"{count_of(found.forks, 'fork')} among them"] if found.forks else []
    parts.append(count_of(found.entries, "entry", "entries"))
    yield f"  {', '.join(parts)}; {size(found.bytes)} of bodies"
    if found.contents:
        yield f"  {count_of(found.contents, 'content')} beside them, {size(found.content_bytes)}"
    if found.largest:
        yield "  largest:"
    for each in found.largest:
        name = safe(one_line(each.name, _NAME_CELLS))
        entries = count_of(each.entries, "entry", "entries")
        yield f"    {size(each.bytes).rjust(9)}  {entries.rjust(14)}  {safe(each.stream)}  {name}"
    if found.growth:
        yield "  growth:"
    for day in found.growth[:_SHOWN_DAYS]:
        entries = count_of(day.entries, "entry", "entries")
        yield f"    {day.day}  {entries.rjust(14)}  {size(day.bytes).rjust(9)}"
