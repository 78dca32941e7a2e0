"""``perdure sessions pick``, and the picker of ``perdure chat --pick``."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.apps.cli.exits import DONE, INTERRUPTED, NothingToPick
from perdure.apps.cli.options import only_text
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.session_rows import row_data
from perdure.client.clock import absolute
from perdure.client.store import Store
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.apps.picker import screen, selection
else:
    screen = Later("perdure.apps.picker.screen")
    selection = Later("perdure.apps.picker.selection")


async def pick(
    *,
    query: Annotated[
        str,
        typer.Option(
            metavar="TEXT", callback=only_text, help="The text of the filter at the start."
        ),
    ] = "",
    is_all: Annotated[
        bool, typer.Option("--all", help="List also sessions of roles and subagents.")
    ] = False,
    common: CommonOptions,
) -> int:
    """Choose a session interactively, and print its id.

    Type to filter by title, id or folder. Each word must match, also approximately; "words in
    quotes" must match exactly. Arrow keys (or Ctrl-P, Ctrl-N) move, Enter selects, Esc cancels,
    Ctrl-U clears the text. If this folder has sessions, only these sessions are listed; Tab
    switches to all sessions. The list is drawn on the terminal and stdout gets only the id, so
    another command can use the output.

    Examples:
        perdure sessions pick
        perdure sessions show "$(perdure sessions pick)"
        perdure sessions pick --query '"exact words"' --json

    Exit codes:
        2    there is no terminal
        3    there are no sessions
        130  cancelled
    """
    async with common.existing_store() as opened:
        info = await pick_session(opened, Path(), query=query, is_all=is_all)
    if info is None:
        return INTERRUPTED
    common.show(row_data(info), info.id)
    return DONE


async def pick_session(
    store: Store,
    folder: Path,
    *,
    query: str = "",
    is_all: bool = False,
    hidden: Collection[StreamId] = (),
) -> SessionInfo | None:
    """Return the session that the user chooses, or None. Sessions of `folder` come first.

    Sessions whose ids are in `hidden` are not offered. Raises: NothingToPick; NoTerminal.
    """
    listed = await store.recent(None, scope="all" if is_all else "listed")
    found = [info for info in listed if info.id not in hidden]
    if not found:
        raise NothingToPick
    # In this thread: the raw terminal waits for the user, and nothing else runs.
    choice = screen.choose(
        selection.first_state(selection.choices_of(found), absolute(folder) or "", query)
    )
    return None if choice is None else choice.info
