from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.lookup.store_files import (
    database_file,
    intended_address,
    is_part_of,
    near_address,
    own_folders,
)


def test_path_of_the_database_file_is_read_from_the_address(tmp_path: Path) -> None:
    assert database_file(f"sqlite:///{tmp_path}/a?b.db") == tmp_path / "a?b.db"
    assert database_file("memory:") is None


def test_path_of_the_session_folder_is_read_from_the_address(tmp_path: Path) -> None:
    assert own_folders(f"jsonl:///{tmp_path}/a%20b?dialect=pi") == (tmp_path / "a b",)
    assert own_folders("jsonl:///") == ()
    assert own_folders(f"sqlite:///{tmp_path}/a.db") == ()


@pytest.mark.parametrize("name", ["a.db", "a.db-wal", "a.db-shm", "sub/../a.db"])
def test_database_file_and_its_side_files_are_part_of_the_store(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    address = f"sqlite:///{tmp_path}/a.db"
    assert is_part_of(tmp_path / name, address)
    assert not is_part_of(tmp_path / "b.db", address)


def test_other_files_in_the_folder_do_not_belong_to_the_store(
    tmp_path: Path,
) -> None:
    address = f"jsonl:///{tmp_path}?dialect=operator"
    assert is_part_of(tmp_path / "x" / "new.jsonl", address)
    assert is_part_of(tmp_path / ".perdure" / "any", address)
    assert not is_part_of(tmp_path / "out.html", address)
    assert not is_part_of(tmp_path.parent / "new.jsonl", address)


def test_mistyped_address_error_suggests_intended_address(tmp_path: Path) -> None:
    for typed, intended in (
        ("/data/x.db", "sqlite:////data/x.db"),
        ("x.db", "sqlite:///x.db"),
        ("sqlite:x.db", "sqlite:///x.db"),
        ("sqlite://x.db", "sqlite:///x.db"),
        ("sqlite:/data/x.db", "sqlite:////data/x.db"),
        ("file:///data/x.db", "sqlite:////data/x.db"),
        (str(tmp_path), f"jsonl:///{tmp_path}"),
        ("~nobody-here/x.db", "sqlite:///~nobody-here/x.db"),
        ("x" * 5_000, "sqlite:///" + "x" * 5_000),
        ("mysql://host/x", None),
        ("sqlite:///", None),
        ("", None),
    ):
        assert intended_address(typed) == intended, typed


def test_suggested_address_of_folder_resolves_to_that_folder(tmp_path: Path) -> None:
    folder = tmp_path / "50% of #1?"
    folder.mkdir()
    offered = intended_address(str(folder))
    assert offered == f"jsonl:///{tmp_path}/50%25 of %231%3F"
    assert own_folders(offered or "") == (folder,)


def test_missing_relative_file_error_suggests_existing_absolute_file(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    address = f"sqlite://{file}"  # three slashes: relative to the working folder
    assert near_address(address) is None
    file.touch()
    assert near_address(address) == f"sqlite:///{file}"
    assert near_address(f"sqlite:///{file}") is None
    for other in ("memory:", "sqlite:///~nobody-here/x.db", f"sqlite:///{'x' * 5_000}"):
        assert near_address(other) is None


def test_missing_relative_folder_error_suggests_existing_absolute_folder(tmp_path: Path) -> None:
    address = f"jsonl://{tmp_path}/a%20b"  # three slashes: relative to the working folder
    assert near_address(address) is None
    (tmp_path / "a b").mkdir()
    assert near_address(address) == f"jsonl:///{tmp_path}/a%20b"
    assert near_address(f"jsonl:///{tmp_path}/a%20b") is None
