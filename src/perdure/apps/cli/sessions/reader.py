"""``perdure sessions read``."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.options import MOST
from perdure.apps.cli.store_options import CommonOptions, opened_session
from perdure.apps.terminal.output import out_style, show, show_json
from perdure.client.session import Session
from perdure.events.wire import wire
from perdure.session.entries import Entry
from perdure.session.messages import MESSAGE
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.apps.terminal import pager, reports, transcript
else:
    pager = Later("perdure.apps.terminal.pager")
    reports = Later("perdure.apps.terminal.reports")
    transcript = Later("perdure.apps.terminal.transcript")


def add_to(sessions: typer.Typer) -> None:
    """Add the command to ``perdure sessions``."""
    sessions.command("read")(read)


async def read(
    session: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The session: its id, the beginning of its id, or its imported file."
        ),
    ],
    entry: Annotated[
        str | None, typer.Argument(metavar="ENTRY", help="Only this entry, on any branch.")
    ] = None,
    *,
    last: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, metavar="N", help="Only the newest N messages."),
    ] = None,
    common: CommonOptions,
) -> None:
    """Print whole messages of a session, in a pager on a terminal.

    Prints the current branch from its beginning: text, thinking, tool calls and results; at its end
    the partial answer of an interrupted turn. The pager is $PAGER, or less. Numbers name entries in
    other commands.

    Examples:
        perdure sessions read 01jd              # the current branch
        perdure sessions read 01jd --last 3     # the newest three messages
        perdure sessions read 01jd 16           # the entry of a search hit

    Exit codes:
        3  session or entry not found
    """
    if entry is not None and last is not None:
        raise UsageMistake("ENTRY prints one entry, --last the newest messages: leave out one")
    async with common.existing_store() as opened:
        handle = await opened_session(opened, session)
        found = await _entries(handle, entry, last)
        end = found[-1] if found else None
        is_branch = entry is None and not common.as_json
        cut = await reports.cut_answer(handle, opened.backend, end) if is_branch else None
    if common.as_json:
        show_json([wire(each) for each in found])
    elif found:
        lines = transcript.transcript_lines(found, handle.id, out_style())
        pager.show_in_pager(chain(lines, transcript.cut_lines(cut, out_style())))
    else:
        show("This session has no messages yet.")


async def _entries(session: Session, entry: str | None, last: int | None) -> list[Entry]:
    """Return one entry or all entries of the current branch. Raises: EntryNotFound, AmbiguousId."""
    if entry is not None:
        return [await session.entry(await session.find(entry))]
    if last is not None:
        return await session.path(last=last, kind=MESSAGE)
    return await session.path()
