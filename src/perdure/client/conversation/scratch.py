"""The scratch directories of a store's sessions: their paths and their deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.client.processes import this_process
from perdure.session.ids import StreamId
from perdure.stores.access.lazy_modules import Later
from perdure.stores.retention.erase import Certificate
from perdure.stores.session_store import SessionStore

if TYPE_CHECKING:
    from perdure.tools.paths import scratch
else:
    scratch = Later("perdure.tools.paths.scratch")


def scratch_dir_of(store: SessionStore, session: StreamId) -> Path:
    """Return the scratch directory of `session`, the same in every process of this machine."""
    place = store.address
    if place.startswith("memory:"):  # a new store each time it is opened
        place = f"{place} {this_process()} {id(store)}"
    return scratch.scratch_of(place, store.namespace, session)


async def without_scratch(store: SessionStore, certificate: Certificate) -> Certificate:
    """Delete the scratch directories of the sessions in `certificate`; return `certificate`."""
    await delete_scratch(store, [each.session for each in certificate.sessions if each.is_whole])
    return certificate


async def delete_scratch(store: SessionStore, sessions: Iterable[StreamId]) -> None:
    """Delete this machine's scratch directories of `sessions`."""
    for session in sessions:
        await asyncio.to_thread(scratch.remove_scratch, scratch_dir_of(store, session))
