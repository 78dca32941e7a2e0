"""A session is opened by its file: in a folder of session files, and where it was imported."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import assistant, user
from perdure.errors import FormatError, NotImported, SessionNotFound
from tests.fakes.session_files import file_of


@pytest.mark.parametrize("dialect", ["operator", "pi"])
async def test_path_opens_session_of_the_folder(
    tmp_path: Path, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sessions"
    async with perdure.open(f"jsonl:///{folder}?dialect={dialect}") as store:
        session = await store.create()
        await session.append(user("hello"), assistant("hi"))
        path = file_of(folder, session.id)
        monkeypatch.chdir(tmp_path)
        linked = tmp_path / "linked"
        linked.symlink_to(folder)
        for named in (path, path.relative_to(tmp_path), linked / path.name):
            assert (await store.open(named)).id == session.id
        # A string is always a whole id, also where it names a file.
        with pytest.raises(SessionNotFound):
            await store.open(str(path))


async def test_path_of_a_copy_opens_that_file(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    async with perdure.open(f"jsonl:///{folder}?dialect=pi") as store:
        session = await store.create()
        await session.append(user("hello"), assistant("hi"))
        path = file_of(folder, session.id)
        elsewhere = tmp_path / path.name
        elsewhere.write_bytes(path.read_bytes())
        with pytest.raises(NotImported):
            await store.open(elsewhere)
        for name in ("odd.jsonl", "empty.jsonl"):
            (folder / name).write_bytes(b"" if name == "empty.jsonl" else b'{"a":1}\n')
            with pytest.raises(FormatError):
                await store.open(folder / name)
        with pytest.raises(FormatError):
            await store.open(folder / "missing.jsonl")
        (folder / "link.jsonl").symlink_to(elsewhere)
        with pytest.raises((FormatError, NotImported)):
            await store.open(folder / "link.jsonl")
