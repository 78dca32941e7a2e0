"""``perdure sessions read``."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import MOST
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.terminal.output import out_style, show, show_json
from perdure.client.session import Session
from perdure.events.wire import wire
from perdure.session.codec import role_of
from perdure.session.entries import Entry
from perdure.session.messages import MESSAGE
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.apps.terminal import pager, reports, transcript
else:
    pager = Later("perdure.apps.terminal.pager")
    reports = Later("perdure.apps.terminal.reports")
    transcript = Later("perdure.apps.terminal.transcript")


_ROLES = ("user", "assistant", "tool")

_CALLS = 100
"""The call of a tool result is searched for in this many messages before the result."""


class Selection(msgspec.Struct, frozen=True):
    """The options of ``perdure sessions read`` that select entries."""

    last: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, metavar="N", help="Only the newest N messages."),
    ] = None
    around: Annotated[
        int | None,
        typer.Option(
            "--context",
            min=1,
            max=MOST,
            metavar="N",
            help="With ENTRY: print also the N entries before and the N entries after ENTRY on "
            "its branch.",
        ),
    ] = None
    role: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="Only messages of this role: user, assistant or tool."),
    ] = None

    def check(self, entry: str | None) -> None:
        """Reject contradicting options. Raises: UsageMistake."""
        if entry is not None and (self.last is not None or self.role is not None):
            other = "--last the newest messages" if self.role is None else "--role those of a role"
            raise UsageMistake(f"ENTRY prints one entry, {other}: leave out one")
        if self.around is not None and entry is None:
            raise UsageMistake("--context needs the ENTRY around which it prints")
        if self.role is not None and self.role not in _ROLES:
            raise UsageMistake(f"unknown role {self.role!r}: use one of {', '.join(_ROLES)}")


async def read(
    session: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The session: its id, the beginning of its id, or its imported file."
        ),
    ],
    entry: Annotated[
        str | None,
        typer.Argument(metavar="ENTRY", help="Print only this entry, which can be on any branch."),
    ] = None,
    *,
    selection: Selection,
    common: CommonOptions,
) -> None:
    """Print whole messages of a session, in a pager on a terminal.

    Prints text, thinking, tool calls and results of the current branch, from its beginning. If a
    turn was interrupted, its partial answer is printed at the end. The pager is the program in
    $PAGER, or `less`. Use the printed numbers to name entries in other commands.

    Examples:
        perdure sessions read 01jd              # the current branch
        perdure sessions read 01jd --last 3     # the newest three messages
        perdure sessions read 01jd 16           # the entry of a search hit
        perdure sessions read 01jd 16 --context 3  # with three entries before and after it
        perdure sessions read 01jd --role user  # only your messages

    Exit codes:
        3  session or entry not found
    """
    selection.check(entry)
    async with common.opened_session(session) as (opened, handle):
        found = await _entries(handle, entry, selection)
        is_result = bool(found) and role_of(found[0]) == "tool"
        before = await handle.path(found[0].id, last=_CALLS, kind=MESSAGE) if is_result else []
        end = found[-1] if found else None
        is_branch = entry is None and selection.role is None and not common.as_json
        cut = await reports.cut_answer(handle, opened.backend, end) if is_branch else None
    if common.as_json:
        show_json([wire(each) for each in found])
    elif found:
        lines = transcript.transcript_lines(found, handle.id, out_style(), before)
        pager.show_in_pager(chain(lines, transcript.cut_lines(cut, out_style())))
    elif selection.role is not None:
        show(f"The current branch has no messages of the role {selection.role}.")
    else:
        show("This session has no messages yet.")


async def _entries(session: Session, entry: str | None, selection: Selection) -> list[Entry]:
    """Return entries of the current branch, or `entry` and, if requested, its neighbours.

    Raises: EntryNotFound, AmbiguousId.
    """
    last, role = selection.last, selection.role
    if entry is not None:
        found = await session.entry(await session.find(entry))
        return await _around(session, found, selection.around or 0)
    if role is not None:
        messages = await session.path(kind=MESSAGE)
        return [each for each in messages if role_of(each) == role][-(last or 0) :]
    if last is not None:
        return await session.path(last=last, kind=MESSAGE)
    return await session.path()


async def _around(session: Session, found: Entry, count: int) -> list[Entry]:
    """Return `found` and up to `count` entries before and after it.

    If `found` is not on the current branch, only entries before it are returned. If `found` is a
    side entry, the entries around it are those of the current branch that were appended before and
    after it.
    """
    if not count:
        return [found]
    branch = await session.path()
    if found.lane == "side":
        own = (n for n, each in enumerate(branch) if each.stream == found.stream)
        at = next((n for n in own if branch[n].seq > found.seq), len(branch))
        return [*branch[max(at - count, 0) : at], found, *branch[at : at + count]]
    at = next((n for n, each in enumerate(branch) if each.id == found.id), None)
    if at is None:
        return await session.path(found.id, last=count + 1)
    return branch[max(at - count, 0) : at + count + 1]
