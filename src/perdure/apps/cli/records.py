"""``perdure usage``, ``perdure activity`` and ``perdure edits``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import PurePath
from typing import Annotated, Literal

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.moments import SinceOption, UntilOption, typed_moment
from perdure.apps.cli.options import MOST, FolderFilter
from perdure.apps.cli.store_options import (
    CommonOptions,
    named_folder,
    named_session,
    require_known,
)
from perdure.apps.session_costs import prices_in_force, sum_of
from perdure.apps.session_rows import short_ids
from perdure.apps.terminal.costs import cost_text
from perdure.apps.terminal.heat_map import heat_map
from perdure.apps.terminal.output import (
    count_of,
    local_time,
    out_style,
    width,
    width_for_paths,
)
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import Column, one_line, table, table_width
from perdure.client.clock import SystemClock
from perdure.client.store import Store
from perdure.models.prices import Price, own_price
from perdure.session.clock import moment_of, timestamp
from perdure.session.ids import StreamId
from perdure.session.info import OWN_SOURCE
from perdure.session.records import ActivityTotal, FileEdit, UsageGroup, UsageTotal

Group = Literal[
    "daily", "monthly", "models", "agents", "projects", "people", "programs", "sessions"
]

EditOrder = Literal["time", "count"]

_GROUPS: Mapping[Group, tuple[UsageGroup, str]] = {
    "daily": ("day", "DAY"),
    "monthly": ("session", "MONTH"),  # by day, to count each session of a month once
    "models": ("model", "MODEL"),
    "agents": ("agent", "AGENT"),
    "projects": ("project", "PROJECT"),
    "people": ("subject", "PERSON"),
    "programs": ("source", "PROGRAM"),
    "sessions": ("session", "SESSION"),
}
"""Group of the command -> its group in the store, and the heading of its column."""

_OF_TIME: frozenset[Group] = frozenset({"daily", "monthly"})
"""Groups whose short names are never cut, because days without their last digits look equal."""
_NUMBERS = ("CALLS", "INPUT", "OUTPUT", "CACHED", "WRITTEN", "COST")
_CELLS = 60
_LEAST_NAME = 20
"""Numbers are printed in full only if this many cells remain for the name."""
_BAR = 24
"""Width, in cells, of the longest bar of ``perdure activity``."""

_PER_TOKEN = 1_000_000
"""A `Price` of one micro-cent per token."""

_NO_USAGE = "No model calls found. `perdure import` brings in the sessions of other programs."


class UsageFilters(msgspec.Struct, frozen=True):
    """The options that select model calls."""

    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only calls of this session.")
    ] = None
    cwd: FolderFilter = None
    since: SinceOption = None
    until: UntilOption = None

    async def reader(
        self, store: Store, since: datetime | None, prices: Mapping[str, Price]
    ) -> Callable[..., Awaitable[list[UsageTotal]]]:
        """Return a function that calls ``store.usage`` with the filters of these options.

        `since` is the default of ``--since``.
        Raises: the errors of `named_session` and `named_folder`.
        """
        return partial(
            store.usage,
            session=None if self.session is None else await named_session(store, self.session),
            cwd=await named_folder(store, self.cwd),
            since=self.since or since,
            until=self.until,
            zone=_zone(),
            prices=prices,
        )


async def usage(
    by: Annotated[
        Group,
        typer.Argument(
            metavar="GROUP",
            help="The unit: daily, monthly, models, agents, projects, people (subjects of "
            "sessions), programs or sessions.",
        ),
    ] = "daily",
    *,
    filters: UsageFilters,
    is_line: Annotated[
        bool,
        typer.Option(
            "--line",
            help="Print the usage in one short line, for a shell prompt; default: the usage of "
            "today.",
        ),
    ] = False,
    common: CommonOptions,
) -> None:
    """Add up the tokens and costs of model calls, also of imported sessions.

    The cost of a call comes from the log. If the log has no cost, the price comes from
    [models.prices] of your settings, or from the public list of the provider (extra `models`).
    Models without a price are listed.

    Examples:
        perdure usage                      # by day
        perdure usage models --since 30d
        perdure usage monthly --since 2026-01
        perdure usage models --session 01jd
        perdure usage --cwd .              # of the sessions of this folder
        perdure usage projects --json
        perdure usage --line               # today, for a prompt
    """
    today = typed_moment("today") if is_line else None
    with prices_in_force() as prices:
        async with common.existing_store() as opened:
            read = await filters.reader(opened, today, prices)
            found = await read(_GROUPS[by][0], daily=by == "monthly")
            if not found:
                await require_known(opened, await named_folder(opened, filters.cwd), None)
            found = _months(found) if by == "monthly" else found
            has_names = by == "sessions" and not common.as_json
            names = await _session_names(opened, found) if has_names else {}
            models = await read("model")
            dearer = [] if is_line or common.as_json else await _dearer_parts(read, models, prices)
    if is_line:
        data = _usage_data(sum_of(found))
        del data["sessions"]  # one may be in several groups
        common.show(data, _line(sum_of(found)))
    else:
        lines = _usage_lines(by, found, models, dearer, names) if found else _NO_USAGE
        common.show([_usage_data(each) for each in found], lines)


def _months(found: Sequence[UsageTotal]) -> list[UsageTotal]:
    """Add up `found`, which are totals by session and day, to totals by month. Pure."""
    months: dict[str, list[UsageTotal]] = {}
    for each in found:
        months.setdefault((each.day or "")[:7], []).append(each)
    return [
        msgspec.structs.replace(
            sum_of(totals), key=month, sessions=len({each.key for each in totals})
        )
        for month, totals in sorted(months.items())
    ]


async def _session_names(store: Store, found: Sequence[UsageTotal]) -> dict[str, tuple[str, ...]]:
    """For each session in `found`, return its short id, the day of its last use, and its title."""
    ids = await short_ids(store, [each.key for each in found])
    names: dict[str, tuple[str, ...]] = {}
    for id, short in ids.items():
        info = (await store.backend.state(StreamId(id))).info
        day, _, _ = local_time(info.updated_at).partition(" ")
        names[id] = (short, day, one_line(info.name, _CELLS) or "(no title)")
    return names


def _zone() -> tzinfo:
    return moment_of(SystemClock().now_ms()).astimezone().tzinfo or UTC


def _usage_data(total: UsageTotal) -> dict[str, object]:
    return {
        "key": total.key,
        "calls": total.calls,
        "sessions": total.sessions,
        **msgspec.structs.asdict(total.usage),
        "total_tokens": total.usage.total_tokens,
        "unpriced_calls": total.unpriced_calls,
    }


def _usage_lines(
    by: Group,
    found: Sequence[UsageTotal],
    models: Sequence[UsageTotal],
    dearer: Sequence[str],
    names: Mapping[str, tuple[str, ...]],
) -> Iterator[str]:
    totals = (*found, sum_of(found)) if len(found) > 1 else found
    yield from usage_table(by, totals, names, width(), out_style())
    for told in dearer:
        yield out_style().paint(told, "warning")
    unpriced = [each for each in models if each.unpriced_calls]
    for each in unpriced:
        name = one_line(each.key, _CELLS) or "(model not named)"
        yield out_style().paint(
            f"no price for {name}: {count_of(each.unpriced_calls, 'call')}", "warning"
        )
    if unpriced:
        yield "Prices go into [models.prices] of your settings: `perdure config path`"


def usage_table(
    by: Group,
    totals: Sequence[UsageTotal],
    names: Mapping[str, tuple[str, ...]],
    width: int,
    style: Style,
) -> Iterator[str]:
    """Format `totals` as a table of at most `width` cells. Pure.

    If too few cells remain for the names, numbers are abbreviated, and LAST USED is omitted.
    """
    _, heading = _GROUPS[by]
    columns = (
        Column(heading, "strong", gives_way=not names and by not in _OF_TIME),
        *((Column("LAST USED", "faint"), Column("TITLE", gives_way=True)) if names else ()),
        *(Column(each, is_right=True) for each in _NUMBERS),
    )
    rows = [_usage_row(each, by, names, "{:,}".format) for each in totals]
    name = len(columns) - len(_NUMBERS) - 1
    least = [(*row[:name], row[name][:_LEAST_NAME], *row[name + 1 :]) for row in rows]
    if table_width(columns, least) > width:
        rows = [_usage_row(each, by, names, _short) for each in totals]
        if names:
            # The id of a subagent is longer than 36 characters.
            session = Column(heading, "strong", gives_way=True, is_path=True)
            columns = (session, *columns[2:])
            rows = [(row[0], *row[2:]) for row in rows]
    return table(columns, rows, width, style)


async def _dearer_parts(
    read: Callable[..., Awaitable[list[UsageTotal]]],
    models: Sequence[UsageTotal],
    prices: Mapping[str, Price],
) -> list[str]:
    """Return a warning for each kind of cached tokens that the user's price of a model lacks.

    If a price lacks a kind of cached tokens, these tokens cost as much as input tokens. Each
    warning contains the number of tokens of its kind. `read` returns the total costs for given
    prices. To count the tokens of one kind, this function raises their price by one micro-cent per
    token, so that the total cost rises by the number of tokens. Calls whose cost is recorded in the
    log do not change the total.
    """
    lacking: dict[str, dict[str, Price]] = {"cache_read": {}, "cache_write": {}}
    for each in models:
        price = own_price(prices, each.key)
        if price is None or not price.input:
            continue
        if price.cache_read is None and each.usage.cache_read_tokens:
            raised = msgspec.structs.replace(price, cache_read=price.input + _PER_TOKEN)
            lacking["cache_read"][each.key] = raised
        if price.cache_write is None and each.usage.cache_write_tokens:
            raised = msgspec.structs.replace(price, cache_write=price.input + _PER_TOKEN)
            lacking["cache_write"][each.key] = raised
    before = {each.key: each.usage.cost_microcents or 0 for each in models}
    found: list[str] = []
    for name, dearer in lacking.items():
        after = await read("model", prices={**prices, **dearer}) if dearer else []
        for each in after:
            tokens = (each.usage.cost_microcents or 0) - before.get(each.key, 0)
            if each.key in dearer and tokens:
                lacks = f"your price of {one_line(each.key, _CELLS)} has no {name}"
                found.append(f"{lacks}: {tokens:,} tokens cost as much as other input")
    return found


def _usage_row(
    total: UsageTotal,
    by: Group,
    names: Mapping[str, tuple[str, ...]],
    spell: Callable[[int], str],
) -> tuple[str, ...]:
    used = total.usage
    unnamed = OWN_SOURCE if by == "programs" else "(none)"
    numbers = (
        total.calls,
        used.input_tokens,
        used.output_tokens,
        used.cache_read_tokens,
        used.cache_write_tokens,
    )
    key = one_line(total.key, _CELLS) or unnamed
    return (
        *(names.get(total.key, (key, "", "")) if names else (key,)),
        *map(spell, numbers),
        cost_text(total),
    )


def _line(total: UsageTotal) -> str:
    tokens = f"{_short(total.usage.total_tokens)} tokens"
    if total.unpriced_calls == total.calls > 0:
        return f"{tokens}, no price"
    return f"{cost_text(total)} {tokens}"


def _short(number: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)


_ROWS = 60
"""Number of rows that ``perdure activity`` prints without ``--last``."""


async def activity(
    *,
    is_hourly: Annotated[
        bool, typer.Option("--hours", help="Count by hour instead of by day.")
    ] = False,
    is_map: Annotated[
        bool,
        typer.Option(
            "--map",
            help="Print a heat map with one column for each week, the newest week on the right.",
        ),
    ] = False,
    cwd: FolderFilter = None,
    since: SinceOption = None,
    until: UntilOption = None,
    last: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST, metavar="N", show_default="60", help="List at most the newest N rows."
        ),
    ] = None,
    common: CommonOptions,
) -> None:
    """Count messages, turns, tool calls and tokens by day, oldest first.

    Examples:
        perdure activity --since 30d
        perdure activity --hours --since yesterday
        perdure activity --map             # a heat map of the last year
    """
    if is_map and is_hourly:
        raise UsageMistake("a heat map has days: leave out --hours")
    if is_map and last is not None:
        raise UsageMistake("a heat map has no rows: leave out --last, or use --since")
    async with common.existing_store() as opened:
        folder = await named_folder(opened, cwd)
        by = "hour" if is_hourly else "day"
        found = await opened.activity(by, since=since, until=until, zone=_zone(), cwd=folder)
        if not found:
            await require_known(opened, folder, None)
    found = found if is_map else found[-(last or _ROWS) :]
    draw = heat_map if is_map else _activity_lines
    lines = draw(found, width(), out_style()) if found else "No activity found."
    common.show([msgspec.structs.asdict(each) for each in found], lines)


def _activity_lines(found: Sequence[ActivityTotal], width: int, style: Style) -> Iterator[str]:
    most = max(each.messages for each in found) or 1
    mark = "█" if style.is_unicode else "#"
    columns = (
        Column("TIME", "strong"),
        *(Column(each, is_right=True) for each in ("MESSAGES", "TURNS", "TOOLS", "TOKENS")),
        Column("", "note", gives_way=True),
    )
    rows = [
        (
            each.key.replace("T", " "),
            f"{each.messages:,}",
            f"{each.turns:,}",
            f"{each.tool_calls:,}",
            _short(each.tokens),
            mark * -(-each.messages * _BAR // most),
        )
        for each in found
    ]
    return table(columns, rows, width, style)


async def edits(
    *,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Only files changed in this session.")
    ] = None,
    cwd: FolderFilter = None,
    sort: Annotated[
        EditOrder,
        typer.Option(
            help="Sort the files by the time of their newest change (time) or by their number of "
            "edits (count)."
        ),
    ] = "time",
    last: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="List at most the first N files.")
    ] = 50,
    common: CommonOptions,
) -> None:
    """List the files that agents changed, newest change first.

    Each file is listed with the session and entry of its newest change; `perdure sessions read`
    prints this change: an edit as a diff, a written file in full. perdure does not undo changes:
    use git, or copy the old text from the log.

    Examples:
        perdure edits --last 10
        perdure edits --sort count         # the files that changed most
        perdure edits --session 01jd --json
        perdure edits --cwd .              # in sessions of this folder
    """
    async with common.existing_store() as opened:
        named = None if session is None else await named_session(opened, session)
        folder = await named_folder(opened, cwd)
        most = last if sort == "time" else None
        found = await opened.edits(session=named, cwd=folder, last=most)
        if not found:
            await require_known(opened, folder, None)
        if sort == "count":
            found = sorted(found, key=lambda each: (-each.edits, -each.at, each.path))[:last]
        ids = await short_ids(opened, list({each.session for each in found}))
    data = [{**msgspec.structs.asdict(each), "at": timestamp(each.at)} for each in found]
    lines = edit_lines(found, ids, width_for_paths(), out_style()) if found else "No edits found."
    common.show(data, lines)


def edit_lines(
    found: Sequence[FileEdit], ids: Mapping[str, str], width: int | None, style: Style
) -> Iterator[str]:
    """Format `found` as a table of at most `width` cells; a `width` of None means no limit. Pure.

    If the table does not fit, the column of folders is omitted, and long paths are cut in the
    middle.
    """
    columns = (
        Column("CHANGED AT", "faint"),
        Column("EDITS", is_right=True),
        Column("FILE", "strong", gives_way=True, is_path=True),
        Column("FOLDER"),
        Column("ENTRY"),
    )
    rows = [
        (
            local_time(each.at),
            f"{each.edits:,}",
            one_line(each.path if each.cwd else PurePath(each.path).name, MOST),
            one_line(each.cwd or str(PurePath(each.path).parent), MOST),
            f"{ids[each.session]} {each.entry_id.rpartition('/')[2]}",
        )
        for each in found
    ]
    needed = table_width(columns, rows)
    if width is None or needed <= width:
        return table(columns, rows, needed, style)
    paths = [one_line(each.path, MOST) for each in found]
    without = [(*row[:2], path, row[4]) for row, path in zip(rows, paths, strict=True)]
    return table((*columns[:3], columns[4]), without, width, style)
