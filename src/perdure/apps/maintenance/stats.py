"""``perdure store stats``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.options import JsonOption, NamespaceOption, StoreOption, run
from perdure.apps.maintenance.rekey import existing_address
from perdure.apps.store_access import NAMESPACE, existing_store
from perdure.apps.terminal.output import count_of, out_style, show_json, show_lines, size
from perdure.apps.terminal.text import one_line, safe
from perdure.client.maintenance.stats import figures
from perdure.stores.maintenance.stats import DAYS, FileFigures, NamespaceFigures, StoreFigures

_NAME_CELLS = 40
_SHOWN_DAYS = 7


def stats(
    *,
    days: Annotated[
        int, typer.Option("--days", min=1, max=3650, help="The number of days of growth to show.")
    ] = DAYS,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Show the size of the namespace, its largest sessions, its growth, and the use of space.

    The sizes of an SQLite file are those of all its namespaces together.

    Examples:
        perdure store stats --json
    """
    address = existing_address(store)

    async def work() -> None:
        async with existing_store(address, namespace) as opened:
            found = await figures(opened, days=days)
        if as_json:
            show_json(msgspec.to_builtins(found))
        else:
            show_lines(_lines(found))

    return run(work)


def _lines(found: StoreFigures) -> Iterator[str]:
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
