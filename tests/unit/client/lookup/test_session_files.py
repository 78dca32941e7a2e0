"""A session is opened by the path of its file, in a session folder or at its import path."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import assistant, user
from perdure.errors import FormatError, NotImported, SessionNotFound
from perdure.interop.imports import import_source
from tests.fakes.session_files import file_of
from tests.fakes.sources import pi_file


@pytest.mark.parametrize("dialect", ["operator", "pi"])
async def test_session_is_opened_by_the_path_of_its_file(
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


async def test_path_of_copied_file_opens_copy(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("address", ["jsonl:///{}/sessions", "sqlite:///{}/store.db", "memory:"])
async def test_path_of_a_missing_file_opens_no_session(tmp_path: Path, address: str) -> None:
    async with perdure.open(address.format(tmp_path)) as store:
        for folder in (tmp_path, tmp_path / "sessions"):
            for path in (folder / "missing.jsonl", folder / "no" / "folder.jsonl"):
                with pytest.raises(SessionNotFound) as caught:
                    await store.open(path)
                assert str(caught.value) == (
                    f"no such file: {path}; check the path, or open the session by its id"
                )
                assert isinstance(caught.value, NotImported)


@pytest.mark.parametrize("dialect", ["operator", "pi"])
async def test_link_to_a_session_file_opens_the_session(tmp_path: Path, dialect: str) -> None:
    folder = tmp_path / "sessions"
    async with perdure.open(f"jsonl:///{folder}?dialect={dialect}") as store:
        session = await store.create()
        await session.append(user("hello"), assistant("hi"))
        path = file_of(folder, session.id)
        link = tmp_path / "newest"
        link.symlink_to(path)
        (tmp_path / "again").symlink_to(link)
        for named in (link, tmp_path / "again"):
            assert (await store.open(named)).id == session.id
        link.unlink()
        with pytest.raises(NotImported, match="no such file"):
            await store.open(link)
        with pytest.raises(NotImported, match="no such file"):
            await store.open(tmp_path / "again")


async def test_link_in_a_session_folder_cannot_be_opened(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "sessions"
    async with perdure.open(f"jsonl:///{folder}?dialect=pi") as store:
        session = await store.create()
        await session.append(user("hello"), assistant("hi"))
        path = file_of(folder, session.id)
        outside = tmp_path / path.name
        outside.write_bytes(path.read_bytes())
        link = folder / "link.jsonl"
        for target in (path, outside, tmp_path / "nothing.jsonl"):
            link.symlink_to(target)
            with pytest.raises(FormatError, match=r"a symbolic link.* open the file it leads to"):
                await store.open(link)
            link.unlink()


async def test_link_to_an_imported_file_opens_its_session(tmp_path: Path) -> None:
    source = tmp_path / "pi.jsonl"
    source.write_bytes(pi_file("v3.jsonl"))
    link = tmp_path / "link.jsonl"
    link.symlink_to(source)
    async with perdure.open(f"sqlite:///{tmp_path}/store.db") as store:
        outside = store.outside
        report = await import_source(
            store.backend, source, clock=outside.clock, random=outside.random
        )
        assert (await store.open(link)).id == report.session
