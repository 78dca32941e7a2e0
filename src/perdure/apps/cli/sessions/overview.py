"""``perdure sessions list``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.moments import SinceOption, UntilOption
from perdure.apps.cli.options import MOST, FolderFilter, SourceFilter, only_subject
from perdure.apps.cli.store_options import (
    CommonOptions,
    named_folder,
    named_session,
    opened_session,
    require_known,
    sessions_in_default,
)
from perdure.apps.session_rows import (
    RowFilter,
    RowParts,
    SessionRow,
    is_fork,
    newest_rows,
    row_data,
    short_ids,
    with_all_forks,
)
from perdure.apps.settings.store_address import NAMESPACE
from perdure.apps.terminal.output import local_time, out_style, remark, width
from perdure.apps.terminal.text import Column, one_line, safe, table
from perdure.client.store import Store
from perdure.session.info import OWN_SOURCE

_WIDE = 110
"""Minimum width of a line, in cells, for the columns of agent and model."""


_CELLS = 22
"""Maximum width of a folder, agent or model, in cells."""


async def _forks_only(opened: Store, wanted: RowFilter, named: str) -> RowFilter:
    """Restrict `wanted` to the forks of the session `named`, including forks of forks."""
    origin = await named_session(opened, named)
    found = await with_all_forks(opened, [origin])
    return msgspec.structs.replace(wanted, among=frozenset(found) - {origin})


class ListFilters(msgspec.Struct, frozen=True):
    """The options of ``perdure sessions list`` that select sessions."""

    query: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Only sessions with this text in the title or id; if there are none, in the "
            "folder.",
        ),
    ] = None
    cwd: FolderFilter = None
    source: SourceFilter = None
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only sessions of this agent.")
    ] = None
    model: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only sessions whose model contains this text."),
    ] = None
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=only_subject, help="Only sessions about this person or thing."
        ),
    ] = None
    since: SinceOption = None
    until: UntilOption = None
    is_interrupted: Annotated[
        bool,
        typer.Option(
            "--interrupted",
            help="Only sessions with an open turn that no process runs: the turn was interrupted, "
            "or waits for you.",
        ),
    ] = False
    hides_ended: Annotated[
        bool,
        typer.Option("--hide-ended", help="Leave out the sessions that have ended."),
    ] = False
    forks_of: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only forks of this session, and forks of these forks."),
    ] = None
    is_all: Annotated[
        bool, typer.Option("--all", help="List also sessions of roles and subagents.")
    ] = False

    @property
    def rows(self) -> RowFilter:
        """The filter that selects the sessions to list."""
        return RowFilter(
            scope="all" if self.is_all else "listed",
            cwd=self.cwd,
            query=self.query,
            subject=self.subject,
            source=self.source,
            status="interrupted" if self.is_interrupted else None,
            agents=frozenset({self.agent} if self.agent is not None else ()),
            model=self.model,
            since=self.since,
            until=self.until,
            hides_ended=self.hides_ended,
        )


async def list_sessions(
    *,
    limit: Annotated[
        int, typer.Option(min=0, max=MOST, metavar="N", help="Maximum number of sessions; 0: all.")
    ] = 50,
    after: Annotated[
        str | None,
        typer.Option(metavar="ID", help="List the sessions after this session (next page)."),
    ] = None,
    filters: ListFilters,
    common: CommonOptions,
) -> None:
    """List sessions, newest activity first.

    Lists the sessions of one namespace; --namespace selects another. The activity of a session is
    its newest user or assistant message. Ids are shortened to prefixes that other commands accept.
    To choose a session interactively, use `perdure sessions pick`; to search messages,
    `perdure sessions search`.

    Examples:
        perdure sessions list --cwd .             # those of this folder
        perdure sessions list --query hotel --limit 5
        perdure sessions list --source codex --since 7d
        perdure sessions list --interrupted       # turns that no process runs
        perdure sessions list --hide-ended        # without those of `perdure sessions end`
        perdure sessions list --forks-of 01jd     # its forks, and theirs
        perdure sessions list --json --limit 0    # all of them, for a program

    Exit codes:
        2  several folders end with the name in --cwd
        3  the store, the session of --after, or the folder of --cwd does not exist
    """
    async with common.existing_store() as opened:
        cwd = await named_folder(opened, filters.cwd)
        wanted = msgspec.structs.replace(filters.rows, cwd=cwd)
        if filters.forks_of is not None:
            wanted = await _forks_only(opened, wanted, filters.forks_of)
        start = None if after is None else await (await opened_session(opened, after)).info()
        most = limit + 1 if limit else None
        has_models = common.as_json or width() >= _WIDE
        read = partial(newest_rows, opened, has_models=has_models)
        found = await read(wanted, most, start)
        if not found and wanted.query:
            parts = RowParts(folder=wanted.query)
            wanted = msgspec.structs.replace(wanted, query=None, parts=parts)
            found = await read(wanted, most, start)
        rows = found[:limit] if limit else found
        named = () if common.as_json else [row.info.id for row in rows]
        ids = await short_ids(opened, named)
        others = ""
        if not rows:
            await require_known(opened, wanted.cwd, wanted.source)
            if not common.as_json and filters.forks_of is None:
                others = await sessions_in_default(common.store, opened)
    lines = () if common.as_json else _lines(rows, ids, has_models=has_models)
    none = _none_found(wanted, common.namespace) if filters.forks_of is None else "No forks found."
    none = [none, others] if others else none
    common.show([_row_data(row) for row in rows], lines or none)
    if len(found) > len(rows) and not common.as_json:
        remark(f"there are more: add --after {ids[rows[-1].info.id]}")


def _none_found(wanted: RowFilter, namespace: str) -> str:
    if wanted in (RowFilter(), RowFilter(scope="all")):
        where = "here" if namespace == NAMESPACE else f"in the namespace {safe(namespace)}"
        return f"No sessions {where} yet. `perdure import FILE` or `perdure chat` makes one."
    return "No session matches these options."


def _row_data(row: SessionRow) -> dict[str, object]:
    return {
        **row_data(row.info),
        "agent": row.agent,
        "model": row.info.model,
        "state": row.state,
    }


def _lines(
    rows: Sequence[SessionRow], ids: Mapping[str, str], *, has_models: bool
) -> Iterable[str]:
    if not rows:
        return ()
    columns = [
        Column("ID", "strong"),
        Column("LAST USED", "faint"),
        Column("FROM", "faint"),
        Column("FOLDER"),
        *((Column("AGENT"), Column("MODEL")) if has_models else ()),
        Column("MESSAGES" if has_models else "MSGS", is_right=True),
        Column("TITLE", gives_way=True),
    ]
    folders = _folder_names({row.info.cwd or "" for row in rows})
    cells = [
        _cells(row, ids[row.info.id], folders[row.info.cwd or ""], has_models=has_models)
        for row in rows
    ]
    return table(columns, cells, width(), out_style())


def _folder_names(folders: Iterable[str]) -> dict[str, str]:
    """Return short names of `folders`: the last part, or more parts where last parts are equal.

    Pure.
    """
    paths = {each: PurePath(each).parts for each in folders}
    ends = Counter(parts[-size:] for parts in paths.values() for size in range(1, len(parts) + 1))
    found: dict[str, str] = {}
    for each, parts in paths.items():
        sizes = range(1, len(parts) + 1)
        size = next((size for size in sizes if ends[parts[-size:]] == 1), len(parts))
        found[each] = str(PurePath(*parts[-size:])) if parts else ""
    return found


def _cells(row: SessionRow, id: str, folder: str, *, has_models: bool) -> list[str]:
    info = row.info
    models = [_short(row.agent), _short((info.model or "").partition(":")[2])]
    return [
        id,
        local_time(info.updated_at),
        _short(info.source or OWN_SOURCE),
        _short(folder),
        *(models if has_models else ()),
        f"{info.messages:,}",
        _title(row),
    ]


def _short(text: str | None) -> str:
    return one_line(text or "", _CELLS)


def _title(row: SessionRow) -> str:
    marks = [mark for mark, is_set in _marks(row) if is_set]
    title = one_line(row.info.name, 200) or "(nothing said yet)"
    return f"{', '.join(marks)}: {title}" if marks else title


def _marks(row: SessionRow) -> tuple[tuple[str, bool], ...]:
    info = row.info
    return (
        ("INTERRUPTED", row.state == "interrupted"),
        ("waits for you", row.state == "waiting"),
        ("running", row.state == "running"),
        ("scheduled", row.state == "scheduled"),
        ("role", info.is_role),
        ("fork", is_fork(info)),
        ("invoked", info.origin == "subagent"),
        ("ended", info.status == "ended"),
        ("import not finished", info.status == "importing"),
    )
