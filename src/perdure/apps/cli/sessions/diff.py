"""``perdure sessions diff ID LEAF_A LEAF_B``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.exits import PathNotFound
from perdure.apps.cli.options import ROOT, SessionArgument
from perdure.apps.cli.store_options import CommonOptions, opened_session
from perdure.apps.terminal.output import count_of, out_style, show_json, show_lines, width
from perdure.apps.terminal.previews import WHO_WIDTH, entry_data, entry_name, preview_of
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import clip, pad
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import AmbiguousId, EntryNotFound, SessionNotFound
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId

BRANCH_LINES = 40
"""Maximum number of entries that are shown of each branch, unless ``--all`` is given."""


async def diff(
    session: SessionArgument,
    first: Annotated[
        str, typer.Argument(metavar="LEAF_A", help="The last entry of the first branch to compare.")
    ],
    second: Annotated[
        str,
        typer.Argument(
            metavar="LEAF_B",
            help="The last entry of the second branch to compare; default: the current entry.",
        ),
    ] = "",
    *,
    is_all: Annotated[
        bool, typer.Option("--all", help="Show every entry of both branches.")
    ] = False,
    common: CommonOptions,
) -> None:
    """Compare two branches of a session.

    Prints the shared entries, the last shared entry, and the entries of each branch. Name an entry
    by its number, its id, the beginning of its id, or a foreign id. The entry does not have to be
    the end of a branch. "root" is the position before the first entry. A branch can also belong to
    another session, such as a fork: name the session, or session/entry.

    Examples:
        perdure sessions diff 01jd 12 20
        perdure sessions diff 01jd 12  # with the current branch
        perdure sessions diff 01jd 12 20 --json
        perdure sessions diff 01jd 01kf  # with the fork 01kf
    """
    async with common.opened_session(session) as (opened, handle):
        paths = [await _path(opened, handle, leaf) for leaf in (first, second)]
    found = difference(*paths)
    leaves = [path[-1].id if path else None for path in paths]
    if common.as_json:
        show_json({"session": handle.id, **difference_data(found, leaves)})
    else:
        limit = None if is_all else BRANCH_LINES
        show_lines(difference_lines(found, leaves, handle.id, width(), out_style(), limit=limit))


async def _path(store: Store, handle: Session, leaf: str) -> list[Entry]:
    """Return the branch that ends at `leaf`; "" means the current branch.

    `leaf` can also name a branch of another session, as ``SESSION`` or ``SESSION/ENTRY``.
    """
    if leaf == ROOT:
        return []
    try:
        return await handle.path(await handle.find(leaf) if leaf else None)
    except EntryNotFound as error:
        session, _, entry = leaf.partition("/")
        try:
            other = await opened_session(store, session)
        except (SessionNotFound, PathNotFound):
            raise error from None
        except AmbiguousId:
            if leaf.isdecimal():  # the number of an entry
                raise error from None
            raise
        return await other.path(await other.find(entry) if entry else None)


class Difference(msgspec.Struct, frozen=True):
    """The shared entries of two branches, and the entries of each branch after the shared ones."""

    shared: tuple[Entry, ...]
    first: tuple[Entry, ...]
    second: tuple[Entry, ...]

    @property
    def parting(self) -> Entry | None:
        """The last shared entry; None if the branches have different roots."""
        return self.shared[-1] if self.shared else None

    @property
    def is_none(self) -> bool:
        """Whether both branches are the same."""
        return not self.first and not self.second


def difference(first: Sequence[Entry], second: Sequence[Entry]) -> Difference:
    """Return the difference between the branches `first` and `second`, both ordered root -> leaf.

    A branch contains no entry twice. Two entries are equal if their ids are equal; entries with
    equal text can differ.
    """
    shared = 0
    for one, other in zip(first, second, strict=False):
        if one.id != other.id:
            break
        shared += 1
    return Difference(tuple(first[:shared]), tuple(first[shared:]), tuple(second[shared:]))


_NUMBER_CELLS = 6
_LEAST_WHAT = 8
_NO_ENTRY = "before its first entry"


def difference_data(found: Difference, leaves: Sequence[EntryId | None]) -> dict[str, object]:
    """Return `found` as JSON data; `leaves` are the last entries of the two branches."""
    parting = found.parting
    return {
        "shared": len(found.shared),
        "parting": None if parting is None else parting.id,
        "branches": [
            {"leaf": leaf, "entries": [entry_data(entry) for entry in entries]}
            for leaf, entries in zip(leaves, (found.first, found.second), strict=True)
        ],
    }


def difference_lines(
    found: Difference,
    leaves: Sequence[EntryId | None],
    own: StreamId,
    width: int,
    style: Style,
    *,
    limit: int | None = None,
) -> Iterator[str]:
    """Format `found` in lines of at most `width` cells, with roughly `limit` entries per branch."""
    first, second = (_name(leaf, own) for leaf in leaves)
    if found.is_none:
        yield f"{first} and {second} end the same branch of {_entries(found.shared)}."
        return
    parting = found.parting
    if parting is None:
        yield "No shared entries: each branch has its own root."
    else:
        yield f"They share {_entries(found.shared)} and part after"
        yield _row(" ", parting, own, width, style)
    for sign, name, entries in (("-", first, found.first), ("+", second, found.second)):
        yield ""
        if not entries:
            yield f"{sign} {name} ends there."
            continue
        yield style.paint(f"{sign} {name} has {_entries(entries)} of its own", "strong")
        yield from _rows(sign, entries, own, width, style, limit=limit)


def _entries(entries: Sequence[Entry]) -> str:
    return count_of(len(entries), "entry", "entries")


def _name(leaf: EntryId | None, own: StreamId) -> str:
    return _NO_ENTRY if leaf is None else f"entry {entry_name(leaf, own)}"


def _rows(
    sign: str,
    entries: Sequence[Entry],
    own: StreamId,
    width: int,
    style: Style,
    *,
    limit: int | None,
) -> Iterator[str]:
    """Format `entries` as rows that begin with `sign`.

    If there are more than `limit` entries, the middle ones are replaced by their count.
    """
    if limit is None or len(entries) <= limit:
        kept, last = entries, entries[:0]
    else:
        kept, last = entries[: (limit + 1) // 2], entries[len(entries) - limit // 2 :]
    for entry in kept:
        yield _row(sign, entry, own, width, style)
    hidden = len(entries) - len(kept) - len(last)
    if hidden:
        mark = "┆" if style.is_unicode else ":"
        yield style.paint(f"{sign} {mark} {hidden:,} more; --all shows them", "faint")
    for entry in last:
        yield _row(sign, entry, own, width, style)


def _row(sign: str, entry: Entry, own: StreamId, width: int, style: Style) -> str:
    number = entry_name(entry.id, own).rjust(_NUMBER_CELLS)
    room = max(width - len(number) - WHO_WIDTH - 4, _LEAST_WHAT)
    preview = preview_of(entry, room)
    who = pad(clip(preview.who, WHO_WIDTH), WHO_WIDTH)
    return (
        f"{sign} {style.paint(number, 'faint')} {style.paint(who, preview.meaning)} {preview.what}"
    ).rstrip()
