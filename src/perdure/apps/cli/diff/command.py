"""``perdure sessions diff ID LEAF_A LEAF_B``."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.apps.cli.diff.comparison import difference
from perdure.apps.cli.diff.render import difference_data, difference_lines
from perdure.apps.cli.options import (
    ROOT,
    JsonOption,
    NamespaceOption,
    SessionArgument,
    StoreOption,
    run,
)
from perdure.apps.cli.session_ids import opened_session
from perdure.apps.store_access import NAMESPACE, existing_store
from perdure.apps.terminal.output import out_style, show_json, show_lines, width
from perdure.client.session import Session
from perdure.session.entries import Entry

BRANCH_LINES = 40
"""Entries of each side that are shown unless all are asked for."""


def add_to(sessions: typer.Typer) -> None:
    """Add the command to ``perdure sessions``."""
    sessions.command("diff")(diff)


def diff(
    session: SessionArgument,
    first: Annotated[str, typer.Argument(metavar="LEAF_A", help="The last entry of one branch.")],
    second: Annotated[
        str,
        typer.Argument(
            metavar="LEAF_B",
            help="The last entry of the other branch; default: the current entry.",
        ),
    ] = "",
    *,
    is_all: Annotated[
        bool, typer.Option("--all", help="Show every entry of both branches.")
    ] = False,
    store: StoreOption = None,
    namespace: NamespaceOption = NAMESPACE,
    as_json: JsonOption = False,
) -> int:
    """Compare two branches of a session.

    Prints the shared entries, the last shared entry, and the entries of each branch. Name an entry
    by its number, its id, the beginning of its id, or a foreign id; it can be inside a branch.
    "root" is the position before the first entry.

    Examples:
        perdure sessions diff 01jd 12 20
        perdure sessions diff 01jd 12  # with the current branch
        perdure sessions diff 01jd 12 20 --json
    """

    async def work() -> None:
        async with existing_store(store, namespace) as opened:
            handle = await opened_session(opened, session)
            paths = [await _path(handle, leaf) for leaf in (first, second)]
        found = difference(*paths)
        leaves = [path[-1].id if path else None for path in paths]
        if as_json:
            show_json({"session": handle.id, **difference_data(found, leaves)})
        else:
            limit = None if is_all else BRANCH_LINES
            show_lines(
                difference_lines(found, leaves, handle.id, width(), out_style(), limit=limit)
            )

    return run(work)


async def _path(handle: Session, leaf: str) -> list[Entry]:
    """The branch that ends at `leaf`; at the session's leaf where none is named."""
    if leaf == ROOT:
        return []
    return await handle.path(await handle.find(leaf) if leaf else None)
