"""The preview of ``perdure sessions erase``, and the erasure of sessions that filters select."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from perdure.apps.cli.sessions.shared_entries import (
    Forks,
    fork_names,
    kept_entries,
    remaining_forks,
    shares_with_parent,
)
from perdure.apps.session_rows import RowFilter, SessionRow, newest_rows
from perdure.apps.terminal.advice import message_of
from perdure.apps.terminal.output import count_of, local_time, remark
from perdure.apps.terminal.text import one_line, safe
from perdure.client.store import Store
from perdure.errors import PerdureError
from perdure.session.info import SessionInfo
from perdure.stores.retention.erase import Certificate, ForkPolicy

_LISTED = 20
_NAME_CELLS = 60


async def selected(store: Store, wanted: RowFilter) -> list[SessionRow]:
    """Return the sessions that match `wanted`, newest first, so forks come before their origins."""
    rows = await newest_rows(store, wanted, None)
    return sorted(rows, key=lambda row: row.info.created_at, reverse=True)


async def reached(
    store: Store, session: str | None, subject: str | None, forks: ForkPolicy
) -> list[SessionRow]:
    """Return the sessions that are erased with `session` or `subject`; with neither, all sessions.

    The result includes child sessions, and also forks if the erasure includes the forks.
    """
    infos = await store.recent(None, scope="all")
    found = {
        str(info.id)
        for info in infos
        if session in (None, info.id) and subject in (None, info.subject)
    }
    if session is not None:
        found.add(session)  # also an erased session, whose forks may remain
    return await _included(store, infos, found, has_forks=session is None or forks == "erase")


async def including(
    store: Store, rows: Sequence[SessionRow], forks: ForkPolicy
) -> list[SessionRow]:
    """Return `rows`, and the sessions that are erased together with one of them."""
    infos = await store.recent(None, scope="all")
    found = {str(row.info.id) for row in rows}
    return await _included(store, infos, found, has_forks=forks == "erase")


async def _included(
    store: Store, infos: Sequence[SessionInfo], found: set[str], *, has_forks: bool
) -> list[SessionRow]:
    """Return the sessions in `found`, their children, and, if `has_forks`, their forks."""
    while more := [
        info.id
        for info in infos
        if info.parent in found
        and info.id not in found
        and (has_forks or not shares_with_parent(info))
    ]:
        found.update(more)
    return await newest_rows(store, RowFilter(scope="all", among=frozenset(found)), None)


async def preview_of(
    store: Store,
    rows: Sequence[SessionRow],
    forks: ForkPolicy,
    *,
    is_one: bool = False,
    is_everything: bool = False,
) -> tuple[Sequence[str], list[str]]:
    """Return the ids of the sessions to erase, and lines to print.

    The lines list the sessions, newest first, their counts, and the entries that remain.
    With `is_one`, one erasure includes all `rows`, so a fork of any row prevents the erasure. With
    `is_everything`, the whole namespace is erased, so no entries remain.
    """
    infos = await store.recent(None, scope="all")
    ids = [row.info.id for row in rows]
    left = remaining_forks(infos, set(ids))
    blocked = set(left) if forks == "refuse" else set[str]()
    if is_one and blocked:
        blocked = set(ids)
    for row in sorted(rows, key=lambda row: row.info.created_at):
        if row.info.parent in blocked and not shares_with_parent(row.info):
            blocked.add(row.info.id)
    kept = Counter[str]()
    if forks == "keep" and left:
        kept.update(id.rpartition("/")[0] for id in await kept_entries(store, left))
    gone = _gone(await store.erasures())
    counts = {id: row.info.entries - kept[id] - gone[id] for id, row in zip(ids, rows, strict=True)}
    lines = [_row_line(row, counts[row.info.id]) for row in rows[:_LISTED]]
    if len(rows) > _LISTED:
        lines.append(f"  … and {len(rows) - _LISTED:,} more")
    erased = [id for id in ids if id not in blocked]
    entries = count_of(sum(counts[id] for id in erased), "entry", "entries")
    lines.append(f"{count_of(len(erased), 'session')}, {entries}")
    lines += _fork_lines(left, forks, kept)
    if not is_everything:
        lines += origin_lines([row.info for row in rows if row.info.id in erased], ids)
    return erased, lines


def _gone(earlier: Sequence[Certificate]) -> Counter[str]:
    """Return, for each session, the number of entries that a new erasure does not erase.

    A new erasure skips the entries that `earlier` erasures erased, and the entries that record the
    `earlier` erasures. Erasures up to the erasure of a whole session are not counted.
    """
    gone = Counter[str]()
    for line in (line for each in earlier for line in each.sessions):
        gone[line.session] = 0 if line.is_whole else gone[line.session] + line.entries + 1
    return gone


def _row_line(row: SessionRow, entries: int) -> str:
    info = row.info
    name = one_line(info.name or "(nothing said yet)", _NAME_CELLS)
    return f"  {info.id}  {local_time(info.updated_at)}  {entries:>5}  {name}"


def _fork_lines(left: Forks, policy: ForkPolicy, kept: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each session in `left` that forks protect from erasure, fully or partly."""
    for session, forks in left.items():
        names = fork_names(forks)
        if policy == "refuse":
            yield (
                f"not erased: {session} has forks ({names}): add --keep-for-forks or --with-forks"
            )
        elif kept[session]:
            entries = count_of(kept[session], "entry", "entries")
            yield f"not erased: {entries} of {session}, which forks share ({names})"


def origin_lines(infos: Iterable[SessionInfo], erased: Collection[str]) -> Iterator[str]:
    """Yield a line for each fork in `infos` whose origin is not erased.

    The line says that the entries that the fork shares with the origin remain.
    """
    for info in infos:
        if shares_with_parent(info) and info.parent not in erased:
            yield (
                f"not erased: entries that {info.id} shares with {info.parent}; to erase them, "
                f"erase {info.parent} --with-forks"
            )


async def erase_rows(
    store: Store, rows: Sequence[SessionRow], forks: ForkPolicy, by: str
) -> tuple[list[Certificate], int]:
    """Erase the sessions in `rows`.

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
