"""Opens and creates the sessions of adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import perdure
from perdure.errors import Erased, SessionExists, SessionNotFound


async def open_session(store: perdure.Store, id: str) -> perdure.Session | None:
    """Return the session `id`; None if it was erased or does not exist."""
    try:
        return await store.open(id)
    except (Erased, SessionNotFound):
        return None


async def open_or_create(
    store: perdure.Store,
    id: str,
    metadata: Mapping[str, object],
    *,
    title: str | None = None,
    subject: str | None = None,
) -> perdure.Session:
    """Return the session `id`; create it if it was erased or does not exist.

    Raises: SessionExists if the session was erased and a fork still shows its entries.
    """
    while (session := await open_session(store, id)) is None:
        try:
            return await store.create(
                id=id,
                title=title,
                metadata=metadata,
                subject=subject,
                origin="subagent",
                reuse_erased=True,
            )
        except SessionExists as error:
            if error.is_erased:
                raise
    return session


async def open_newest(
    store: perdure.Store, ids: Iterable[str]
) -> tuple[perdure.Session | None, str]:
    """Skip the ids of erased sessions; return the session with the next id, and this id.

    The returned session is None if no session has the returned id. `ids` is endless.
    """
    for id in ids:
        try:
            return await store.open(id), id
        except Erased:  # its id may be taken
            continue
        except SessionNotFound:
            return None, id
    raise AssertionError("ids never end")


async def create_newest(
    store: perdure.Store,
    ids: Iterable[str],
    metadata: Mapping[str, object],
    *,
    subject: str | None = None,
    reuse_erased: bool = False,
) -> None:
    """Create a session with the first usable id, unless another process creates it first.

    `ids` is endless. If `reuse_erased` is False, the ids of erased sessions are skipped. If
    `reuse_erased` is True, the id of an erased session is skipped only if a fork still shows
    entries of that session.
    """
    for id in ids:
        try:
            await store.create(id=id, metadata=metadata, subject=subject, reuse_erased=reuse_erased)
        except SessionExists as error:
            if error.is_erased:
                continue
        return
