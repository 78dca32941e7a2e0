"""The session that a file was imported as."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import assistant, user
from perdure.errors import Erased, NotImported
from perdure.interop.imports import import_source
from tests.fakes.session_files import file_of


async def test_path_opens_imported_session_until_it_is_erased(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    async with perdure.open(f"jsonl:///{folder}?dialect=pi") as files:
        session = await files.create()
        await session.append(user("hello"), assistant("hi"))
        path = file_of(folder, session.id)
    async with perdure.open("memory:") as store:
        with pytest.raises(NotImported, match="import it first"):
            await store.open(path)
        clock, random = store.outside.clock, store.outside.random
        report = await import_source(store.backend, path, clock=clock, random=random)
        opened = await store.open(path)
        assert opened.id == report.session
        assert [message.text for message in await opened.messages()] == ["hello", "hi"]
        await store.erase(opened.id)
        with pytest.raises(Erased):
            await store.open(path)
