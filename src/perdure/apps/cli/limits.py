"""``perdure store retention`` and ``perdure store quota``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.terminal.output import count_of, size
from perdure.apps.terminal.text import one_line
from perdure.client import retention
from perdure.client.store import Store
from perdure.session.ids import StreamId
from perdure.stores.retention.policy import Retention, RetentionReport
from perdure.stores.retention.quotas import Quota, Usage

_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_BYTES = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_NONE = "none"
_TITLE = 60
"""Maximum width of a title, in cells."""

_RETENTION = """Show, set and apply the retention policy.

Examples:
    perdure store retention set --max-idle 90d
    perdure store retention apply
"""
_QUOTA = """Show and set the quota of a namespace.

Examples:
    perdure store quota set --max-bytes 2GB
"""

retention_commands = typer.Typer(help=_RETENTION, no_args_is_help=True)
quota_commands = typer.Typer(help=_QUOTA, no_args_is_help=True)


AgeOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Maximum age of a session: 90d, 12h; or none.")
]
IdleOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Maximum time since the newest message; or none.")
]
SessionsOption = Annotated[
    str | None, typer.Option(metavar="N", help="Maximum number of sessions; or none.")
]
EntriesOption = Annotated[
    str | None, typer.Option(metavar="N", help="Maximum number of entries; or none.")
]
BytesOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Maximum size of the namespace: 500MB, 2GB; or none."),
]


@retention_commands.command("show")
async def show_retention(*, common: CommonOptions) -> None:
    """Show the retention policy of the namespace.

    Examples:
        perdure store retention show
    """
    async with common.existing_store() as opened:
        policy = await retention.retention(opened)
    common.show(msgspec.structs.asdict(policy), _policy_lines(policy))


@retention_commands.command("set")
async def set_retention(
    *,
    max_age: AgeOption = None,
    max_idle: IdleOption = None,
    max_sessions: SessionsOption = None,
    max_bytes: BytesOption = None,
    common: CommonOptions,
) -> None:
    """Set the retention policy. Limits that you do not name stay the same. Deletes no session.

    Examples:
        perdure store retention set --max-idle 90d --max-bytes 5GB
    """
    async with common.existing_store() as opened:
        old = await retention.retention(opened)
        policy = Retention(
            max_age_s=_changed_limit(old.max_age_s, max_age, _seconds),
            max_idle_s=_changed_limit(old.max_idle_s, max_idle, _seconds),
            max_sessions=_changed_limit(old.max_sessions, max_sessions, _number),
            max_bytes=_changed_limit(old.max_bytes, max_bytes, _size),
        )
        await retention.set_retention(opened, policy)
    common.show(msgspec.structs.asdict(policy), _policy_lines(policy))


@retention_commands.command("apply")
async def apply_retention(
    *,
    is_dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="List the sessions that would be deleted or kept, with reasons; delete nothing.",
        ),
    ] = False,
    common: CommonOptions,
) -> None:
    """Delete the sessions that the retention policy selects, and free their space.

    Other processes can write during the deletion. A session that shares entries with a fork, or has
    an open turn or question, is not deleted.

    Examples:
        perdure store retention apply
    """
    async with common.existing_store() as opened:
        done = await retention.apply_retention(opened, is_dry_run=is_dry_run)
        titles = await _titles(opened, done) if is_dry_run and not common.as_json else {}
    common.show(
        {**msgspec.structs.asdict(done), "is_done": not is_dry_run},
        _removed_lines(done, titles, is_dry_run=is_dry_run),
    )


async def _titles(store: Store, done: RetentionReport) -> dict[StreamId, str]:
    """Return the titles of the sessions in `done`, formatted for the end of a printed line."""
    listed = [each.stream for each in (*done.plan.expiring, *done.plan.held)]
    names = {each: (await store.backend.state(each)).info.name for each in listed}
    return {id: f"  {one_line(name, _TITLE) or '(no title)'}" for id, name in names.items()}


def _removed_lines(
    done: RetentionReport, titles: Mapping[StreamId, str], *, is_dry_run: bool
) -> Iterator[str]:
    verb = "would be removed" if is_dry_run else "removed"
    for each in done.plan.expiring:
        title = titles.get(each.stream, "")
        yield f"{each.stream}  {verb}: {each.why}, {size(each.bytes)}{title}"
    for held in done.plan.held:
        title = titles.get(held.stream, "")
        yield f"{held.stream}  stays: held by {held.hold} (otherwise {verb}: {held.why}){title}"
    if is_dry_run:
        yield f"{count_of(len(done.plan.expiring), 'session')} {verb}; nothing was changed"
        return
    yield f"removed {count_of(done.sessions, 'session')}, {size(done.bytes)} of content"
    yield f"freed {size(done.freed_bytes)}"


@quota_commands.command("show")
async def show_quota(*, common: CommonOptions) -> None:
    """Show the quota of the namespace and its current size.

    Examples:
        perdure store quota show --json
    """
    async with common.existing_store() as opened:
        limits, used = await retention.quota(opened)
    data = {"quota": msgspec.structs.asdict(limits), "usage": used}
    common.show(data, _quota_lines(limits, used))


@quota_commands.command("set")
async def set_quota(
    *,
    max_sessions: SessionsOption = None,
    max_entries: EntriesOption = None,
    max_bytes: BytesOption = None,
    common: CommonOptions,
) -> None:
    """Set the quota of the namespace. Limits that you do not name stay the same.

    Examples:
        perdure store quota set --max-sessions 10000 --max-bytes 2GB
    """
    async with common.existing_store() as opened:
        old, _ = await retention.quota(opened)
        wanted = Quota(
            max_sessions=_changed_limit(old.max_sessions, max_sessions, _number),
            max_entries=_changed_limit(old.max_entries, max_entries, _number),
            max_bytes=_changed_limit(old.max_bytes, max_bytes, _size),
        )
        await retention.set_quota(opened, wanted)
        limits, used = await retention.quota(opened)
    data = {"quota": msgspec.structs.asdict(limits), "usage": used}
    common.show(data, _quota_lines(limits, used))


def _quota_lines(limits: Quota, used: Usage) -> Iterator[str]:
    for name in ("sessions", "entries", "bytes"):
        limit = getattr(limits, f"max_{name}")
        most = "" if limit is None else f" of {_spell_limit(f'max_{name}', limit)}"
        held = size(used.bytes) if name == "bytes" else f"{getattr(used, name):,}"
        yield f"{name:<8}  {held}{most}"


def _policy_lines(policy: Retention) -> Iterator[str]:
    if policy.is_empty:
        yield "no limits: every session is kept"
    for name, value in msgspec.structs.asdict(policy).items():
        if value is not None:
            yield f"{_SAID[name]:<42}  {_spell_limit(name, value)}"


_SAID = {
    "max_age_s": "delete sessions older than",
    "max_idle_s": "delete sessions without new messages after",
    "max_sessions": "largest number of sessions",
    "max_bytes": "largest size of messages and notes",
}
"""Limit of a retention policy -> text that describes it."""


def _spell_limit(name: str, value: int) -> str:
    """Format a limit for the command line, in the largest unit that gives an integer."""
    units = _SECONDS if name.endswith("_s") else _BYTES if name == "max_bytes" else {}
    for unit, factor in sorted(units.items(), key=lambda each: -each[1]):
        if unit and value and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value:,}"


def _changed_limit(old: int | None, typed: str | None, read: Any) -> int | None:
    if typed is None:
        return old
    return None if typed == _NONE else read(typed)


def _seconds(typed: str) -> int:
    found = re.fullmatch(r"(\d{1,6})([mhdw])", typed)
    if found is None:
        raise UsageMistake(f"{typed!r} is no time: say 90d, 12h, 30m or 4w, or none")
    return int(found[1]) * _SECONDS[found[2]]


def _size(typed: str) -> int:
    found = re.fullmatch(r"(\d{1,12})(kB|MB|GB)?", typed)
    if found is None:
        raise UsageMistake(f"{typed!r} is no size: say 500MB or 2GB, or none")
    return int(found[1]) * _BYTES[found[2] or ""]


def _number(typed: str) -> int:
    if not re.fullmatch(r"\d{1,12}", typed):
        raise UsageMistake(f"{typed!r} is no number: say one, or none")
    return int(typed)
