"""Check a handoff that waits for approval, and ask again if its files have changed.

The next role receives the approved content from the store, even if the files change later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.rules.handoffs import approved_contents, restage
from perdure.errors import EntryNotFound, FlowRefusal, HeadConflict
from perdure.session.clock import Clock
from perdure.session.flows.run import FlowState
from perdure.stores.protocol import Commit
from perdure.stores.session_store import SessionStore


async def require_as_staged(
    store: SessionStore, journal: Journal, clock: Clock, node: str | None
) -> None:
    """Reject the approval of a staged handoff if one of its files has changed.

    `node` is the node of the handoff; None means the only handoff that waits.

    If a file changed, the handoff is staged again with the current content of its files, and a new
    question is asked. If the files are not on this machine, they are not compared, and the next
    role receives the staged content.
    Raises: FlowRefusal if a file changed.
    """
    while True:
        state = await journal.state()
        staged = state.run.pending_handoff_approvals
        node = next(iter(staged)) if node is None and len(staged) == 1 else node
        if node is None or node not in staged or not state.is_place_in_force:
            return  # approving reports it; the folder of a received flow is not read
        record = RecordFolder(Path(state.run.record_folder_path), Path(state.run.workspace_root))
        names = [target.artifact for target in staged[node]]
        found = await asyncio.to_thread(record.look_up, names)
        again = restage(state, node, {name: each.artifact for name, each in found.items()})
        if again is None:
            return
        blobs = tuple(each.content for each in found.values() if each.artifact.problem is None)
        write = journal.write(state, again)
        with suppress(HeadConflict):
            await store.commit(Commit(writes=(write,), at=clock.now_ms(), blobs=blobs))
            raise FlowRefusal(
                state.run.flow_id,
                f"files of {node}'s handoff changed after it was staged ({', '.join(names)}); "
                "review them: the handoff needs approval again",
            )


async def approved_texts(
    store: SessionStore, state: FlowState, keys: Iterable[str]
) -> dict[str, str]:
    """Return the approved files of the handoffs along the edges `keys`, as path -> text."""
    texts: dict[str, str] = {}
    for key in keys:
        for path, digest in approved_contents(state, key).items():
            try:
                texts[path] = (await store.blob(digest)).decode(errors="replace")
            except EntryNotFound:
                texts[path] = "(what was approved is not in the store any more)"
    return texts
