"""The path of an imported or written file opens the session of that file."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import assistant, user
from perdure.errors import Erased, NotImported
from perdure.interop.continuation import Program, continuation_of
from perdure.interop.imports import import_source
from perdure.interop.recordings import Recorded, imported_as
from tests.fakes.session_files import file_of
from tests.fakes.sources import imported, pi_file


async def test_path_of_an_imported_file_opens_the_session(
    tmp_path: Path,
) -> None:
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


@pytest.mark.parametrize("program", ["pi", "operator"])
async def test_exported_file_is_recognized_as_the_original_session(
    tmp_path: Path, program: Program
) -> None:
    file, other = tmp_path / "written.jsonl", tmp_path / "other.jsonl"
    async with perdure.open("memory:") as store:
        ours = await store.create()
        said = await ours.append(user("hello"), assistant("hi"))
        theirs = (await imported(store.backend, pi_file("v3.jsonl"))).session
        for id, leaf in ((ours.id, None), (ours.id, said[0].id), (theirs, None)):
            made = await continuation_of(store.backend, id, program, cwd="/srv", leaf=leaf)
            file.write_bytes(made.exported.content)
            assert await imported_as(store.backend, file) == Recorded(id)
            line = file.read_bytes().splitlines()[-1]
            file.write_bytes(made.exported.content + line.replace(b'"id":"', b'"id":"a') + b"\n")
            assert await imported_as(store.backend, file) == Recorded(id, is_behind=True)
        other.write_bytes(made.exported.content.replace(b'"text":"', b'"text":"another '))
        assert await imported_as(store.backend, other) is None
