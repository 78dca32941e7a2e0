"""``perdure sessions search QUERY``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, get_args

import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import MOST, JsonOption, NamespaceOption, StoreOption, run
from perdure.apps.cli.search.render import hit_data, hit_lines
from perdure.apps.cli.session_ids import named_session
from perdure.apps.progress import progress_bar
from perdure.apps.store_access import NAMESPACE, existing_store
from perdure.apps.terminal.output import out_style, remark, show_json, show_lines, width
from perdure.errors import StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.search.values import HITS, SearchRole

ROLES: tuple[SearchRole, ...] = get_args(SearchRole)

RolesOption = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help=f"Only {', '.join(ROLES)}."),
]
SessionsOption = Annotated[
    list[str] | None,
    typer.Option("--session", metavar="ID", help="Only in this session."),
]
ToolsOption = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="NAME", help="Only calls and results of this tool."),
]
_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        formats=_FORMATS,
        metavar="TIME",
        help="Not before this local date or time: 2026-11-21T09:30.",
    ),
]
UntilOption = Annotated[
    datetime | None,
    typer.Option(formats=_FORMATS, metavar="TIME", help="Before this local date or time."),
]
BranchOption = Annotated[
    bool | None,
    typer.Option(
        "--on-branch/--off-branch",
        help="Only entries on the current branch of their session, or only others.",
    ),
]


def add_to(sessions: typer.Typer) -> None:
    """Add the command to ``perdure sessions``."""
    sessions.command("search")(search)


def search(  # noqa: PLR0913 - each is an option of the command
    query: Annotated[str, typer.Argument(metavar="QUERY", help='Words, "phrases", begin*.')],
    *,
    role: RolesOption = None,
    session: SessionsOption = None,
    tool: ToolsOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    on_branch: BranchOption = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Maximum number of hits.")
    ] = HITS,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Search every branch of every session, the best hits first.

    A hit contains all words; "words in quotes" must be next to each other. begin* finds all words
    with this beginning. OR finds either word, NOT excludes a word. Letter case and accents are
    ignored.

    Examples:
        perdure sessions search 'which hotel'
        perdure sessions search '"exact words" OR migrat*' --role user --since 2026-11-01
        perdure sessions search TODO --session 01jd --json

    Exit codes:
        2  the query is invalid
    """
    roles = _roles(role or ())

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            # Where there can be no index, or not now, the search reads what is not indexed.
            with suppress(StoreReadOnly, StoreFull, StoreUnavailable):
                await opened.index(progress_bar("index"))
            found = await opened.search(
                query,
                roles=roles,
                sessions=[await named_session(opened, each) for each in session or ()],
                tools=tool or (),
                since=since,
                until=until,
                on_branch=on_branch,
                limit=limit,
                on_progress=progress_bar("search"),
            )
        if as_json:
            show_json([hit_data(hit) for hit in found])
        elif found:
            show_lines(hit_lines(found, width(), out_style()))
        else:
            remark("Nothing found.")

    return run(work)


def _roles(names: Sequence[str]) -> tuple[SearchRole, ...]:
    for name in names:
        if name not in ROLES:
            raise UsageMistake(f"unknown role {name!r}: use one of {', '.join(ROLES)}")
    return tuple([role for role in ROLES if role in names])
