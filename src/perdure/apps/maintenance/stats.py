"""``perdure store stats``: statistics of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated

import typer

from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.terminal.output import count_of, out_style, size
from perdure.apps.terminal.text import one_line, safe
from perdure.client.store import Store
from perdure.errors import SessionNotFound, Unsupported
from perdure.session.info import stored_name
from perdure.stores.maintenance.protocol import SOME_COMMITS
from perdure.stores.maintenance.segments import SegmentState
from perdure.stores.maintenance.stats import (
    DAY_MS,
    DAYS,
    FileFigures,
    Growth,
    NamespaceFigures,
    StoreFigures,
    StreamSize,
    figures_of,
)
from perdure.stores.protocol import EMPTY
from perdure.stores.session_store import SessionStore
from perdure.stores.validation import names_in


async def figures(store: Store, *, days: int = DAYS) -> StoreFigures:
    """Return sizes, the largest sessions, and the growth over the last `days` days.

    The figures cover the open namespace; file sizes cover all namespaces. A database computes the
    figures with queries. For a store in memory or in session files, this function reads all data.
    """
    since = store.outside.clock.now_ms() - days * DAY_MS
    with suppress(Unsupported):
        return await store.backend.maintenance.measure(since)
    return StoreFigures(store.backend.address, (await _read_whole(store.backend, since),))


async def _read_whole(store: SessionStore, since: int) -> NamespaceFigures:
    growth, names = Growth(since), set[str]()
    sizes: list[StreamSize] = []
    for each in await store.maintenance.segment_states():
        with suppress(SessionNotFound):  # removed meanwhile
            sizes.append(await _size(store, each, growth, names))
    facts = await store.info()
    content_bytes = max(0, facts.payload_bytes - sum(each.bytes for each in sizes))
    return figures_of(store.namespace, sizes, growth.days, (len(names), content_bytes))


async def _size(
    store: SessionStore, standing: SegmentState, growth: Growth, names: set[str]
) -> StreamSize:
    stream, after, total = standing.stream, EMPTY, 0
    while after < standing.head:
        share = await store.maintenance.read_segment(
            stream, after=after, upto=standing.head, limit=SOME_COMMITS
        )
        for commit in share.commits:
            size = sum(len(row.entry.body) for row in commit.rows)
            growth.add(commit.at, len(commit.rows), size)
            total += size
            names |= names_in(row.entry.body for row in commit.rows)
        if not share.commits:
            break
        after = share.commits[-1].last
    state = await store.state(stream)
    return StreamSize(
        stream=stream,
        kind=state.header.kind,
        name=stored_name(state.info),
        is_fork=standing.origin is not None,
        entries=standing.head + 1,
        bytes=total,
    )


_NAME_CELLS = 40
_SHOWN_DAYS = 7


async def stats(
    *,
    days: Annotated[
        int,
        typer.Option(min=1, max=3650, help="The number of past days for which growth is shown."),
    ] = DAYS,
    common: CommonOptions,
) -> None:
    """Show the size, the growth, the largest sessions and the use of space of the namespace.

    For an SQLite store, the file sizes cover all namespaces in the file.

    Examples:
        perdure store stats --json
    """
    async with common.existing_store() as opened:
        found = await figures(opened, days=days)
    common.show(found, _stats_lines(found))


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
