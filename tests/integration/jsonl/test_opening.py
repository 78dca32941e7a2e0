"""Addresses of session folders, opened through the library's public functions."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import assistant, user
from perdure.errors import ConfigError, EntryNotFound, StoreUnavailable
from tests.fakes.session_files import files_below
from tests.fakes.session_tools import Operator, Pi
from tests.fakes.unreadable import unreadable


@pytest.mark.parametrize(("query", "tool"), [("", Operator), ("?dialect=pi", Pi)])
async def test_folder_is_opened_by_its_address(
    tmp_path: Path, query: str, tool: type[Operator | Pi]
) -> None:
    async with perdure.open(f"jsonl:///{tmp_path}/my%20sessions{query}") as store:
        session = await store.create(title="Trip", cwd=str(tmp_path), lazy=True)
        first = await session.append(user("Hello"))
        assert files_below(tmp_path, "*.jsonl") == []  # nothing before the assistant speaks
        await session.append(assistant("Hi"))
        await session.branch(first.id)
        await session.label(first.id, "start")
        copy = await session.fork(at=first.id)
        await copy.append(user("in the copy"))
        with pytest.raises(EntryNotFound):
            await copy.branch(first.id)

        path, _ = files_below(tmp_path / "my sessions", "*.jsonl")

        assert tool(path).context() == [("user", "Hello")]
        assert session.id in path.name


async def test_relative_folder_is_created_in_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with perdure.open("jsonl:///here", namespace="team") as store:
        session = await store.create()
        await session.append(assistant("Hi"))

    (path,) = files_below(tmp_path / "here", "*.jsonl")
    assert path.parent.name == "team"


@pytest.mark.parametrize(
    "address",
    ["jsonl:", "jsonl:///", "jsonl:dir", "jsonl:///d?dialect=cobol", "jsonl:///d?other=1"],
)
async def test_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(ConfigError):
        async with perdure.open(address):
            pass


async def test_folder_that_cannot_be_read_is_reported_as_unreadable(tmp_path: Path) -> None:
    address = f"jsonl:///{tmp_path}/s"
    async with perdure.open(address) as store:
        await store.create(title="Trip")
    folder = tmp_path / "s"
    with unreadable(folder), pytest.raises(StoreUnavailable, match="this user may not read it"):
        async with perdure.open(address) as store:
            await store.recent()


@pytest.mark.parametrize(("dialect", "other"), [("pi", "operator"), ("operator", "pi")])
async def test_folder_in_the_file_format_of_another_program_is_rejected(
    tmp_path: Path, dialect: str, other: str
) -> None:
    address = f"jsonl:///{tmp_path}/s"
    async with perdure.open(f"{address}?dialect={dialect}") as store:
        await (await store.create()).append(perdure.user("hello"))
    (file,) = (tmp_path / "s").glob("*.jsonl")
    before = file.read_bytes()
    with pytest.raises(ConfigError, match=rf"use jsonl:///.*/s\?dialect={dialect}"):
        async with perdure.open(f"{address}?dialect={other}"):
            pass
    assert file.read_bytes() == before
