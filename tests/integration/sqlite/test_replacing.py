"""A store whose file another process replaces during opening: the new file is opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import KeyMissing
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite import connections, database
from perdure.stores.sqlite.maintenance.backup import snapshot
from perdure.stores.sqlite.store import SqliteStore
from tests.conformance.store.building import header
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.processes import child

CHILD = Path(__file__).parent / "children" / "replace.py"
S = StreamId("s")


async def opened(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1))


async def say(path: Path, text: str) -> None:
    store = await opened(path)
    write = Write(stream=S, create=header(S), entries=(new_tree(user(text)),))
    await store.commit(Commit(writes=(write,), at=START_MS))
    await store.close()


class Once:
    """A wrapper of a function: before its first call, another process changes the store's file."""

    def __init__(self, how: str, path: Path, real: Any) -> None:
        self._command = [sys.executable, str(CHILD), how, str(path)]
        self._real = real
        self.is_done = False

    def before(self, *arguments: Any, **named: Any) -> Any:
        if not self.is_done:
            self.is_done = True
            subprocess.run(self._command, check=True)
        return self._real(*arguments, **named)


MOMENTS = {
    "before it is opened": (connections, "bare_connection"),
    "before the first look": (database, "connection"),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_opening_during_replacement_returns_new_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = tmp_path / "a.db"
    await say(path, "old")
    await say(path.with_name("new.db"), "new")
    module, name = MOMENTS[moment]
    once = Once("move", path, getattr(module, name))
    monkeypatch.setattr(module, name, once.before)

    store = await opened(path)

    assert once.is_done
    (entry,) = await store.entries(S)
    assert entry.message is not None
    assert entry.message.text == "new"
    await store.close()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_opening_during_encryption_raises_key_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = tmp_path / "a.db"
    await say(path, "old")
    module, name = MOMENTS[moment]
    once = Once("rekey", path, getattr(module, name))
    monkeypatch.setattr(module, name, once.before)
    with pytest.raises(KeyMissing):
        await opened(path)
    assert once.is_done


async def test_backup_waits_for_short_exclusive_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await say(path, "old")
    with child(CHILD, "hold", path) as holder:
        snapshot(path, None, tmp_path / "copy.db", lambda _done, _total: None)
        assert holder.last_line() == "done"

    copy = await opened(tmp_path / "copy.db")
    assert len(await copy.entries(S)) == 1
    await copy.close()
