"""``perdure sessions search QUERY``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, get_args

import typer
from rich.cells import cell_len

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import MOST
from perdure.apps.cli.store_options import CommonOptions, named_session
from perdure.apps.progress import progress_bar
from perdure.apps.terminal.output import local_time, out_style, remark, show_json, show_lines, width
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import clip, safe
from perdure.errors import StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.clock import timestamp
from perdure.session.search.values import HITS, Hit, SearchRole

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


async def search(  # noqa: PLR0913 - each is an option of the command
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
    common: CommonOptions,
) -> None:
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

    async with common.existing_store() as opened:
        # Without a writable index, the search reads the texts that are not indexed.
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
    if common.as_json:
        show_json([hit_data(hit) for hit in found])
    elif found:
        show_lines(hit_lines(found, width(), out_style()))
    else:
        remark("Nothing found.")


def _roles(names: Sequence[str]) -> tuple[SearchRole, ...]:
    for name in names:
        if name not in ROLES:
            raise UsageMistake(f"unknown role {name!r}: use one of {', '.join(ROLES)}")
    return tuple([role for role in ROLES if role in names])


_INDENT = 2


def hit_data(hit: Hit) -> dict[str, object]:
    """Return `hit` as JSON data. `entry_id` is null for the initial title of a session."""
    return {
        "session": hit.stream,
        "entry_id": hit.entry,
        "role": hit.role,
        "snippet": hit.snippet,
        "score": hit.score,
        "on_branch": hit.is_on_branch,
        "at": timestamp(hit.at),
        "about": hit.about,
        "marks": hit.marks,
    }


def hit_lines(hits: Sequence[Hit], width: int, style: Style) -> Iterator[str]:
    """Format each of `hits` in two lines: its entry, and its snippet with marked matches."""
    for hit in hits:
        yield _heading(hit, style)
        yield from (" " * _INDENT + line for line in _snippet_lines(hit, width - _INDENT, style))


def _heading(hit: Hit, style: Style) -> str:
    place = style.paint(clip(safe(hit.entry or hit.stream), 200), "strong")
    facts = [hit.role, local_time(hit.at)]
    if not hit.is_on_branch:
        facts.append("another branch")
    return f"{place}  {style.paint('  '.join(facts), 'faint')}"


def _snippet_lines(hit: Hit, width: int, style: Style) -> Iterator[str]:
    """Wrap the snippet at spaces; mark matches by colour, or by brackets without colours."""
    line, used = "", 0
    for text, is_mark in _pieces(hit):
        shown = style.paint(text, "label") if is_mark else text
        if is_mark and not style.is_coloured:
            shown = f"[{text}]"
        size = cell_len(text) + 2 * (is_mark and not style.is_coloured)
        if line and used + size > width:
            yield line.rstrip()
            line, used = "", 0
        if line or not text.isspace():
            line, used = line + shown, used + size
    if line:
        yield line.rstrip()


def _pieces(hit: Hit) -> Iterator[tuple[str, bool]]:
    """Split the snippet into words, spaces and marked matches."""
    text, at = safe(hit.snippet), 0
    for first, last in (*hit.marks, (len(text), len(text))):
        for number, word in enumerate(text[at:first].split(" ")):
            if number:
                yield " ", False
            if word:
                yield word, False
        if last > first:
            yield text[first:last], True
        at = last
