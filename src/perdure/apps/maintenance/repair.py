"""``perdure store repair``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import DONE, FAILED
from perdure.apps.cli.options import JsonOption, NamespaceOption, StoreOption, run
from perdure.apps.maintenance.rekey import existing_address
from perdure.apps.maintenance.trust import TrustOption, trust_store
from perdure.apps.progress import progress_bar
from perdure.apps.store_access import NAMESPACE
from perdure.apps.terminal.advice import with_commands
from perdure.apps.terminal.output import count_of, out_style, show_json, show_lines
from perdure.apps.terminal.text import safe
from perdure.client.maintenance.repair import RepairReport
from perdure.client.maintenance.repair import repair as repaired


def repair(
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
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
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
    address = existing_address(store)

    async def work() -> int:
        bar = progress_bar("repair")
        done = await repaired(address, to=to, namespace=namespace, on_progress=bar)
        if is_trusting:
            await trust_store(to or address, namespace)
        if as_json:
            show_json(msgspec.structs.asdict(done))
        else:
            show_lines(_lines(done))
        return FAILED if done.losses else DONE

    return run(work)


def _lines(done: RepairReport) -> Iterator[str]:
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
