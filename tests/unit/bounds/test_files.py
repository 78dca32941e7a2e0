"""Regular files are read up to a size limit; other file types are not opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.bounds.files import is_folder, open_named, read_named, read_named_text
from perdure.bounds.limits import limits
from perdure.errors import LimitExceeded
from tests.fakes.unreadable import unreadable


def test_regular_file_is_read_through_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\r\ny")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert read_named(tmp_path / "b") == b"x\r\ny"
    assert read_named_text(tmp_path / "a") == "x\ny"


@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "missing"])
def test_file_that_is_not_regular_is_rejected_immediately(tmp_path: Path, kind: str) -> None:
    place = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "zero":
        place.symlink_to("/dev/zero")
    elif kind == "folder":
        place.mkdir()
    for read in (read_named, open_named):
        with pytest.raises(OSError, match=r"not a regular file|Is a directory|No such file"):
            read(place)


def test_error_for_a_too_large_file_contains_file_and_limit(tmp_path: Path) -> None:
    place = tmp_path / "a"
    with place.open("wb") as file:
        file.truncate(limits().document_bytes + 1)
    with pytest.raises(LimitExceeded, match=r"limits.document_bytes"):
        read_named(place)


def test_path_in_an_unreadable_folder_raises_permission_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_dir", os.path.isdir)  # what Python 3.14 does
    (tmp_path / "file").touch()
    places = [tmp_path, tmp_path / "file", tmp_path / "none", tmp_path / ("a" * 300), Path("\0")]
    assert [is_folder(place) for place in places] == [True, False, False, False, False]
    with unreadable(tmp_path), pytest.raises(PermissionError):
        is_folder(tmp_path / "below")
