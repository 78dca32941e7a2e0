"""Opens and creates the sessions in which adapters store what is not a conversation."""

from __future__ import annotations

from collections.abc import Mapping

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
