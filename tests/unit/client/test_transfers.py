"""Files of imports and exports. tests/conformance/store/test_public_calls.py tests the calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.store import Store
from perdure.client.transfers import files_at, write_file
from perdure.errors import FormatError, PathExists, WrongArgument
from perdure.session.messages import assistant, user
from tests.fakes.unreadable import unreadable

KEY = "AKIAQ4XRZ7WJ2KLMNB5C"
"""A session id that looks like an AWS key."""


def test_files_of_the_store_itself_are_not_imported(tmp_path: Path) -> None:
    for name in ("own/a.jsonl", "other/b.jsonl", "other/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}", encoding="utf-8")
    address = f"jsonl:///{tmp_path}/own?dialect=operator"
    found = list(files_at([tmp_path, tmp_path / "named"], address, print))
    assert found == [tmp_path / "other" / "b.jsonl", tmp_path / "named"]


def test_database_of_the_store_itself_is_not_imported(tmp_path: Path) -> None:
    for name in ("own/sessions.db", "other/sessions.db"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"")
    found = list(files_at([tmp_path], f"sqlite:///{tmp_path}/own/sessions.db", print))
    assert found == [tmp_path / "other" / "sessions.db"]


def test_export_replaces_existing_file_only_on_request(tmp_path: Path) -> None:
    file = tmp_path / "out"
    write_file(file, b"1", is_replacing=False)
    with pytest.raises(PathExists):
        write_file(file, b"2", is_replacing=False)
    write_file(file, b"3", is_replacing=True)
    assert (file.read_bytes(), [*tmp_path.iterdir()]) == (b"3", [file])
    assert file.stat().st_mode & 0o777 == 0o600


def test_export_replaces_a_file_with_the_longest_possible_name(tmp_path: Path) -> None:
    file = tmp_path / ("ä" * 127)  # 254 bytes; a file system allows 255
    for content in (b"1", b"2"):
        write_file(file, content, is_replacing=True)
        assert (file.read_bytes(), [*tmp_path.iterdir()]) == (content, [file])


async def test_export_error_contains_the_folder_that_cannot_be_created(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FormatError, match="cannot be made a folder"):
        await store.export("perdure", tmp_path / "file" / "below")
    session = await store.create()
    await session.append(user("hello"))
    with pytest.raises(FormatError, match="cannot be written"):
        await session.export("perdure", tmp_path / "missing" / "out.jsonl")
    with pytest.raises(WrongArgument, match="folder"):
        await session.export("perdure", tmp_path)


async def test_path_in_an_unreadable_folder_is_reported_by_imports_and_exports(
    store: Store, tmp_path: Path
) -> None:
    session = await store.create()
    await session.append(user("hello"))
    hidden = tmp_path / "hidden" / "file.jsonl"
    hidden.parent.mkdir()
    with unreadable(hidden.parent):
        (error,) = (await store.import_files([hidden])).errors
        with pytest.raises(FormatError, match=r"cannot be written.*permissions of file and folder"):
            await session.export("perdure", hidden)
    assert isinstance(error, FormatError)
    assert str(error) == f"{hidden}: it cannot be read (Permission denied)"


async def test_redacted_export_of_a_fork_hides_the_origin_id(store: Store) -> None:
    origin = await store.create(id=KEY)
    await origin.append(user("hello"), assistant("hi"))
    copy = await origin.fork(id="copy")
    await copy.append(user("more"))
    for format in ("html", "markdown", "perdure", "pi", "operator", "codex", "workflow"):
        redacted = (await copy.export(format, redact=["secrets"])).content
        assert KEY.encode() not in redacted, format
    assert KEY.encode() in (await copy.export("html")).content
    lines = (await copy.export("markdown", redact=["secrets"])).content.decode().splitlines()
    numbers = [line.split(" · ")[0] for line in lines if line.startswith("## ")]
    assert numbers == ["## ↑0", "## ↑1", "## 0"]
