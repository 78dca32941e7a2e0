"""The folder with a user's key for marks, and the user's list of trusted content."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from perdure.client.trust import TrustFolder, streams_of
from perdure.errors import ConfigError
from perdure.session.ids import StreamId
from perdure.stores.marks import KEY_BYTES
from tests.unit.stores.test_marks import TRUSTED, S, begun, store_with


def test_concurrent_threads_create_one_trust_key(tmp_path: Path) -> None:
    folder = TrustFolder(tmp_path / "perdure" / "trust")
    assert not (tmp_path / "perdure").exists()
    threads = [
        threading.Thread(target=lambda: folder.marks(is_trusted=False).endorsements([]))
        for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (key,) = (tmp_path / "perdure" / "trust").iterdir()
    assert len(key.read_bytes()) == KEY_BYTES
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700


async def test_key_that_cannot_be_stored_is_used_only_in_this_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = TrustFolder(tmp_path / "file" / "trust")
    marks = folder.marks(is_trusted=False)
    entries = await begun(store_with(marks))
    assert marks.is_own(entries[0])
    assert not folder.marks(is_trusted=False).is_own(entries[0])
    with pytest.raises(ConfigError, match="cannot write"):
        await folder.trust(store_with(TRUSTED), 1, ())


async def test_trust_does_not_cover_entries_that_change_later(tmp_path: Path) -> None:
    folder, store = TrustFolder(tmp_path), store_with(TRUSTED)
    entries = await begun(store)
    marks = folder.marks(is_trusted=False)
    assert not marks.own_among(entries)
    assert await streams_of(store) == [S]
    told = await folder.trust(store, 5, await streams_of(store))
    assert (told.streams, told.entries) == (1, 5)
    assert folder.stores() == [told]
    assert marks.own_among(entries) == {0, 1, 2, 3, 4}
    other = store_with(TRUSTED)
    changed = [entry for entry in await begun(other) if entry.seq != 0]
    assert 0 not in marks.own_among(changed)


async def test_unknown_session_is_not_trusted(tmp_path: Path) -> None:
    folder, store = TrustFolder(tmp_path), store_with(TRUSTED)
    await begun(store)
    await folder.trust(store, 5, ())
    assert not folder.marks(is_trusted=False).own_among(await store.entries(StreamId("s")))
