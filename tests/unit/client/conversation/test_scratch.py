"""Scratch directories of sessions: their location, and their deletion with the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.conversation.scratch import scratch_dir_of
from perdure.client.retention import apply_retention
from perdure.client.store import Store
from perdure.session.ids import StreamId
from perdure.stores.retention.policy import Retention
from tests.fakes.chats import Stage
from tests.fakes.clock import ManualClock


def kept(store: Store, session: str) -> Path:
    """The scratch directory of `session`, with a file in it."""
    folder = scratch_dir_of(store.backend, StreamId(session))
    folder.mkdir(parents=True)
    (folder / "a").write_text("x")
    return folder


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


async def test_scratch_folder_is_deleted_with_its_session(store: Store) -> None:
    for id in ("a", "b", "c"):
        await store.create(id=id, subject="ann" if id == "c" else None)
    folders = {id: kept(store, id) for id in ("a", "b", "c")}
    await store.erase("a")
    assert [id for id, folder in folders.items() if folder.exists()] == ["b", "c"]
    await store.erase(subject="ann")
    assert [id for id, folder in folders.items() if folder.exists()] == ["b"]
    await store.erase(everything=True)
    assert not folders["b"].exists()


async def test_scratch_folder_is_deleted_by_retention(store: Store, clock: ManualClock) -> None:
    await store.create(id="a")
    folder = kept(store, "a")
    clock.advance(60)
    await apply_retention(store, Retention(max_age_s=10))
    assert not folder.exists()


async def test_tools_of_session_receive_scratch_folder() -> None:
    stage = Stage()
    chat = await stage.chat()
    given = chat._running.environment.scratch_dir  # pyright: ignore[reportPrivateUsage] - what its tools are called with
    assert given == scratch_dir_of(stage.memory, chat.id)
    assert given is not None
    assert not given.exists()
