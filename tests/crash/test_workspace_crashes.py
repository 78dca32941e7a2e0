"""``kill -9`` at every commit of a session that moves: folder, list and prompt always match."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.client.conversation.authority import authority_of
from perdure.client.conversation.workspace import kept_workspace
from perdure.client.store import Store
from perdure.session.ids import StreamId
from tests.crash.children import mover
from tests.fakes.forked import preload, run_forked

preload(mover.__name__)

COMMITS = 6
"""Number of commits of the run: start, move, variables, two for the turn, fork."""


def killed(folder: Path, dies_at: int) -> bool:
    """Run the child until it dies or finishes; return whether it died."""
    places = [str(folder / name) for name in ("store.db", "one", "two")]
    done = run_forked(mover.run, *places, dies_at)
    if done.code not in (0, -9):
        pytest.fail(done.err)
    return done.code == -9


async def prompt_in_force(store: Store, session: str) -> str | None:
    """Return the prompt of `session`; check that the workspace and the list entry match it."""
    bound = (await authority_of(store.backend, StreamId(session))).bound
    assert bound is not None
    place = kept_workspace(bound.workspace)
    assert (await (await store.open(session)).info()).cwd == place.working_dir
    assert bound.system_prompt == f"In {place.working_dir} for {place.variables['shop']}."
    return bound.system_prompt


@pytest.mark.parametrize("dies_at", range(1, COMMITS + 1))
async def test_moved_session_is_consistent_after_any_kill(tmp_path: Path, dies_at: int) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert killed(tmp_path, dies_at)
    async with perdure.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        await prompt_in_force(store, "s")
    assert not killed(tmp_path, 0)
    async with perdure.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        assert await prompt_in_force(store, "s") == f"In {tmp_path / 'two'} for milk."
        assert await prompt_in_force(store, "f") == f"In {tmp_path / 'one'} for milk."
        assert (await store.verify()).is_ok


def test_planned_kills_cover_every_commit_of_a_workspace_run(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert not killed(tmp_path, COMMITS + 1)
