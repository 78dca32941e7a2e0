"""``perdure sessions search QUERY``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Annotated, get_args

import msgspec
import typer
from rich.cells import cell_len

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.moments import SinceOption, UntilOption
from perdure.apps.cli.options import MOST, FolderFilter, SourceFilter
from perdure.apps.cli.sessions.near_words import near_words
from perdure.apps.cli.sessions.newest import newest_hits
from perdure.apps.cli.store_options import (
    CommonOptions,
    named_folder,
    named_session,
    nothing_found,
    require_known,
)
from perdure.apps.progress import progress_bar
from perdure.apps.session_rows import short_ids
from perdure.apps.terminal.output import local_time, out_style, remark, show_json, show_lines, width
from perdure.apps.terminal.previews import entry_name
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import one_line, safe
from perdure.client.lookup.search_hits import hits_in_force
from perdure.client.store import Store
from perdure.errors import StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.clock import ms_of, timestamp
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from perdure.session.search.values import HITS, Hit, SearchQuery, SearchRole

ROLES: tuple[SearchRole, ...] = get_args(SearchRole)


class SearchFilters(msgspec.Struct, frozen=True):
    """The options of ``perdure sessions search`` that select entries."""

    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help=f"Search only this role or kind: {', '.join(ROLES)}."),
    ] = None
    session: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Search only this session.")
    ] = None
    tool: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only calls and results of this tool.")
    ] = None
    since: SinceOption = None
    until: UntilOption = None
    on_branch: Annotated[
        bool | None,
        typer.Option(
            "--on-branch/--off-branch",
            help="Search only the current branch of each session, or only the other branches.",
        ),
    ] = None
    cwd: FolderFilter = None
    source: SourceFilter = None

    @property
    def roles(self) -> tuple[SearchRole, ...]:
        """The message roles to search. Raises: UsageMistake if a role is unknown."""
        for name in self.role or ():
            if name not in ROLES:
                raise UsageMistake(f"unknown role {name!r}: use one of {', '.join(ROLES)}")
        return tuple([role for role in ROLES if role in (self.role or ())])

    def check(self, *, has_words: bool) -> None:
        """Raises: UsageMistake if a role is unknown, or if there are neither words nor a filter."""
        if not self.roles and not has_words and self == SearchFilters():
            raise UsageMistake(
                "missing argument QUERY; see --help, or add a filter, such as --role user, to list "
                "the newest messages"
            )

    async def query(self, store: Store, text: str, limit: int) -> SearchQuery | None:
        """Return the query for `text` with the filters; None if no session matches them.

        Raises: the errors of `SearchFilters.sessions`.
        """
        sessions = await self.sessions(store)
        if sessions is not None and not sessions:
            return None
        return SearchQuery(
            text=text,
            roles=self.roles,
            sessions=tuple(sessions or ()),
            tools=tuple(self.tool or ()),
            since=None if self.since is None else ms_of(self.since),
            until=None if self.until is None else ms_of(self.until),
            is_on_branch=self.on_branch,
            limit=limit,
        )

    async def sessions(self, store: Store) -> list[StreamId] | None:
        """Return the sessions to search; None means all sessions.

        Raises: the errors of `named_session` and `named_folder`.
        """
        named = [await named_session(store, each) for each in self.session or ()]
        if self.cwd is None and self.source is None:
            return named or None
        cwd = await named_folder(store, self.cwd)
        found = await store.recent(None, scope="all", cwd=cwd, source=self.source)
        return [info.id for info in found if not named or info.id in named]


async def search(
    query: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY",
            help='Words, "phrases", begin*. With filters only, lists the newest messages.',
        ),
    ] = None,
    *,
    filters: SearchFilters,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Maximum number of hits.")
    ] = HITS,
    common: CommonOptions,
) -> None:
    """Search every branch of every session, the best hits first.

    The hits of one session are printed together; --json prints them in the order of their score. A
    hit contains all words; "words in quotes" must be next to each other. The query begin* finds all
    words that start with "begin". OR finds texts with either word, and NOT excludes texts with a
    word. Letter case and accents are ignored.

    Without words, lists the newest messages that match the filters. The list contains messages of a
    role or subagent only if you name the session of the role or subagent with --session.

    Examples:
        perdure sessions search which hotel
        perdure sessions search --role user --since 7d  # what you wrote
        perdure sessions search '"exact words" OR migrat*' --role user --since 2026-11-01
        perdure sessions search TODO --session 01jd --json
        perdure sessions search retry --cwd . --source codex --since 30d

    Exit codes:
        2  the query is invalid
    """
    text = " ".join(query or ())
    filters.check(has_words=bool(query))
    if text.count('"') % 2:
        remark("a quotation mark is not closed, so it is ignored: close it to find the exact words")
    async with common.existing_store() as opened:
        sought = await filters.query(opened, text, limit)
        scope = "all" if filters.session else "listed"
        find = _matches(opened, sought) if query else newest_hits(opened, sought, scope=scope)
        shown = await _with_sessions(opened, await find)
        near: list[str] = []
        if not shown:
            await require_known(opened, await named_folder(opened, filters.cwd), filters.source)
            if query and not common.as_json:
                near = await near_words(opened, sought)
    if common.as_json:
        show_json([hit_data(each) for each in shown])
    elif shown:
        show_lines(hit_lines(shown, width(), out_style()))
    else:
        told = await nothing_found(common.store, common.namespace)
        remark(f"{told} Similar words: {safe(', '.join(near))}" if near else told)


async def _matches(store: Store, query: SearchQuery | None) -> list[Hit]:
    if query is None:
        return []
    # Without a writable index, the search reads the texts that are not indexed.
    with suppress(StoreReadOnly, StoreFull, StoreUnavailable):
        await store.index(progress_bar("index"))
    return await hits_in_force(store.backend, query, progress_bar("search"))


_INDENT = 2


class ShownHit(msgspec.Struct, frozen=True):
    """A hit, its session, and the short id of the session."""

    hit: Hit
    info: SessionInfo
    short_id: str


async def _with_sessions(store: Store, hits: Sequence[Hit]) -> list[ShownHit]:
    streams = list(dict.fromkeys(hit.stream for hit in hits))
    infos = {each: (await store.backend.state(each)).info for each in streams}
    ids = await short_ids(store, streams)
    return [ShownHit(hit, infos[hit.stream], ids[hit.stream]) for hit in hits]


def hit_data(shown: ShownHit) -> dict[str, object]:
    """Return `shown` as JSON data.

    `entry_id` is null if the hit is the initial title of a session.
    """
    hit, info = shown.hit, shown.info
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
        "title": info.name or None,
        "cwd": info.cwd,
    }


def hit_lines(hits: Sequence[ShownHit], width: int, style: Style) -> Iterator[str]:
    """Format `hits`, grouped below the titles of their sessions.

    The session with the best hit is first.

    Each hit has a snippet with marked matches, and the command that prints the entry.
    """
    groups: dict[StreamId, list[ShownHit]] = {}
    for each in hits:
        groups.setdefault(each.hit.stream, []).append(each)
    for found in groups.values():
        info, is_many = found[0].info, len(found) > 1
        told = f"{len(found)} hits" if is_many else _facts(found[0].hit)
        yield _heading(info, told, width, style)
        for each in found:
            snippet = _snippet_lines(each.hit, width - _INDENT, style)
            yield from (" " * _INDENT + line for line in snippet)
            command = f"{' ' * _INDENT}perdure sessions read {_place(each)}"
            more = f"  # {_facts(each.hit)}" if is_many else ""
            yield style.paint(f"{command}{more}", "faint")


def _place(shown: ShownHit) -> str:
    """Return the arguments that name the entry of a hit in a command."""
    entry = shown.hit.about or shown.hit.entry
    if entry is None:
        return shown.short_id
    return f"{shown.short_id} {entry_name(entry, shown.info.id)}"


def _facts(hit: Hit) -> str:
    facts = [hit.role, local_time(hit.at)]
    if not hit.is_on_branch:
        facts.append("another branch")
    return "  ".join(facts)


def _heading(info: SessionInfo, facts: str, width: int, style: Style) -> str:
    told = safe("  ".join(filter(None, [PurePath(info.cwd or "").name, facts])))
    title = one_line(info.name, max(width - cell_len(told) - _INDENT, 16)) or "(no title)"
    return f"{style.paint(title, 'strong')}  {style.paint(told, 'faint')}"


def _snippet_lines(hit: Hit, width: int, style: Style) -> Iterator[str]:
    """Wrap the snippet at spaces; mark matches with colour, or with brackets if colours are off."""
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
