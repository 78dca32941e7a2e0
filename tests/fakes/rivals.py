"""Another writer that appends at a chosen moment: between what a caller read and its commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from perdure.stores.protocol import Commit, CommitResult
from perdure.stores.session_store import SessionStore

Act = Callable[[], Awaitable[object]]
"""What the other writer does."""


def meanwhile(
    monkeypatch: pytest.MonkeyPatch,
    store: SessionStore,
    kind: str,
    act: Act,
    *,
    is_after: bool = False,
) -> None:
    """Run `act` once, right before or after the first commit that has an entry of `kind`."""
    commit_as_it_is = store.commit
    waiting = [act]

    async def commit(commit: Commit) -> CommitResult:
        kinds = {entry.kind for write in commit.writes for entry in write.entries}
        now = waiting.pop() if waiting and kind in kinds else None
        if now is not None and not is_after:
            await now()
        committed = await commit_as_it_is(commit)
        if now is not None and is_after:
            await now()
        return committed

    monkeypatch.setattr(store, "commit", commit)
