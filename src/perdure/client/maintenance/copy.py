"""Copying sessions between stores of any kind."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.client.clock import system_random
from perdure.client.store import Store
from perdure.interop.bundle import bundle_of
from perdure.session.ids import StreamId
from perdure.stores.copy import CopyReport, Progress, StoreCopy, Whole, with_origins
from perdure.stores.session_store import SessionStore


async def copy_sessions(
    source: Store,
    target: Store,
    *,
    sessions: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> CopyReport:
    """Copy all sessions and flows of `source`'s namespace, or `sessions`, to `target`'s.

    What is copied is what was there when it began; both stores may be written meanwhile. Begun
    again, it goes on where it was, and adds what is new. Entries keep ids, salts, digests and
    hashes; forks stay pointers, and bring along what they were forked from. Where the target cannot
    hold a session so, it is sealed anew, which the report says. Leases and idempotency keys stay
    behind.
    Shape: `sessions` are whole ids.
    Durable: each part when it is there; all of it on return.
    Raises: SessionNotFound for `sessions`; Unsupported; what reading or writing does.
    A session that is damaged, or is another one in the target, is said in the report instead.
    """
    giving, taking = source.backend, target.backend
    moment = await giving.maintenance.segment_states()
    if sessions is not None:
        chosen = [(await giving.state(StreamId(id))).header.id for id in sessions]
        moment = with_origins(moment, chosen)
    return await copy_of(giving, taking, on_progress).run(moment)


def copy_of(
    source: SessionStore, target: SessionStore, on_progress: Progress | None = None
) -> StoreCopy:
    """A copy from a backend to another."""

    async def whole_of(stream: StreamId) -> Whole:
        bundle = await bundle_of(source, stream)
        return Whole(bundle.header, bundle.entries, bundle.aliases)

    return StoreCopy(
        source,
        target,
        whole_of=whole_of,
        random=system_random,
        on_progress=on_progress or untold,
    )


def untold(_done: int, _total: int) -> None:
    """Report to nobody."""
