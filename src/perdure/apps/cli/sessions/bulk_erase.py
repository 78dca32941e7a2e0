"""The preview of ``perdure sessions erase``, and the erasure of sessions that filters select."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.moments import UntilOption
from perdure.apps.cli.options import FolderFilter, SourceFilter
from perdure.apps.session_rows import RowFilter, SessionRow, newest_rows
from perdure.apps.terminal.advice import message_of
from perdure.apps.terminal.output import count_of, local_time, remark
from perdure.apps.terminal.text import one_line, safe
from perdure.client.store import Store
from perdure.errors import PerdureError
from perdure.session.info import SessionInfo
from perdure.stores.retention.erase import Certificate, ForkPolicy

_NO_FORKS = ("role", "subagent")
"""Origins of sessions whose parent is what they belong to, not what they share entries with."""

_LISTED = 20
_NAME_CELLS = 60


class EraseFilters(msgspec.Struct, frozen=True):
    """The options that select many sessions to erase."""

    query: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Sessions whose title or id contains this text."),
    ] = None
    cwd: FolderFilter = None
    source: SourceFilter = None
    until: UntilOption = None
    is_preview: Annotated[
        bool,
        typer.Option("--dry-run", help="List the data that would be erased, and erase nothing."),
    ] = False

    @property
    def rows(self) -> RowFilter | None:
        """The sessions that the filters select; None if no filter was given.

        Raises: UsageMistake if a filter is empty, for example because of an unset shell variable.
        """
        for option, text in (("--query", self.query), ("--source", self.source)):
            if text is not None and not text.strip():
                raise UsageMistake(f"{option} is empty; name what to erase, or leave it out")
        if (self.query, self.cwd, self.source, self.until) == (None, None, None, None):
            return None
        return RowFilter(query=self.query, cwd=self.cwd, source=self.source, until=self.until)


async def selected(store: Store, wanted: RowFilter) -> list[SessionRow]:
    """Return the sessions that match `wanted`, newest first: forks come before their origins."""
    rows = await newest_rows(store, wanted, None)
    return sorted(rows, key=lambda row: row.info.created_at, reverse=True)


async def reached(
    store: Store, session: str | None, subject: str | None, forks: ForkPolicy
) -> list[SessionRow]:
    """Return the sessions that an erasure of `session`, of `subject` or of everything includes.

    The result includes child sessions; it includes forks only if the forks are erased, too.
    """
    infos = await store.recent(None, scope="all")
    found = {info.id for info in infos if _is_named(info, session, subject)}
    has_forks = session is None or forks == "erase"
    while more := [
        info.id
        for info in infos
        if info.parent in found and info.id not in found and (has_forks or info.origin in _NO_FORKS)
    ]:
        found.update(more)
    return await newest_rows(store, RowFilter(scope="all", among=frozenset(found)), None)


def _is_named(info: SessionInfo, session: str | None, subject: str | None) -> bool:
    return session in (None, info.id) and subject in (None, info.subject)


async def preview_lines(store: Store, rows: Sequence[SessionRow], forks: ForkPolicy) -> list[str]:
    """List the sessions to erase, newest first, with their count, and the sessions that remain."""
    lines = [_row_line(row) for row in rows[:_LISTED]]
    if len(rows) > _LISTED:
        lines.append(f"  … and {len(rows) - _LISTED:,} more")
    messages = sum(row.info.messages for row in rows)
    lines.append(f"{count_of(len(rows), 'session')}, {count_of(messages, 'message')}")
    if forks == "refuse":
        lines += await _kept_lines(store, rows)
    return lines


def _row_line(row: SessionRow) -> str:
    info = row.info
    name = one_line(info.name or "(nothing said yet)", _NAME_CELLS)
    return f"  {info.id}  {local_time(info.updated_at)}  {info.messages:>5}  {name}"


async def _kept_lines(store: Store, rows: Sequence[SessionRow]) -> Iterator[str]:
    """List the sessions that cannot be erased, because remaining forks share their entries."""
    erased = {row.info.id for row in rows}
    others = [info for info in await store.recent(None, scope="all") if info.id not in erased]
    origins = {info.parent for info in others if info.origin not in _NO_FORKS}
    kept = [row.info.id for row in rows if row.info.id in origins]
    if not kept:
        return iter(())
    advice = "add --keep-for-forks or --with-forks"
    return iter((f"not these, which have forks ({advice}): {', '.join(kept)}",))


async def erase_rows(
    store: Store, rows: Sequence[SessionRow], forks: ForkPolicy, by: str
) -> tuple[list[Certificate], int]:
    """Erase the session of each of `rows`.

    Returns the certificates, and the number of sessions whose erasure failed.
    """
    done: list[Certificate] = []
    failures = 0
    for row in rows:
        try:
            done.append(await store.erase(row.info.id, forks=forks, by=by))
        except PerdureError as error:
            failures += 1
            remark(safe(f"{row.info.id}: not erased: {message_of(error)}"))
    return done, failures
