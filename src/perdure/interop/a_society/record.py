"""Read the record folder of a flow as a set of files: workflow, artifacts, findings.

The set contains only regular files, and its size is limited; links are not followed. Dot files and
credentials are left out and reported, because they belong to the machine and not to the flow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from perdure.bounds.limits import require_within
from perdure.errors import ConfigError
from perdure.tools.paths.project_files import read_inside

RECORD = "record"
"""Name of the folder, inside an exported flow folder, that contains the flow's record."""

WORKFLOW = "workflow.yaml"

_OWN = (".flow", f".{WORKFLOW}.new")
"""Dot files that perdure writes into a record folder."""


class RecordFiles(msgspec.Struct, frozen=True):
    """The files of a record folder.

    Shape: `files` maps a path in the folder to the content of the file. `left_out` maps a path to
    the reason why the file was omitted.
    """

    files: dict[str, bytes] = {}
    left_out: dict[str, str] = {}


def read_record(folder: Path, names: Iterable[str] | None = None) -> RecordFiles:
    """Return the files of the record `folder`, or only the files `names` if they are given.

    Blocks. Raises: LimitExceeded if the files or bytes exceed the limits of an import.
    """
    files: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    size = 0
    for number, name in enumerate(sorted(_names(folder) if names is None else set(names)), 1):
        require_within("import_folders", number, str(folder))
        if names is None and Path(name).name.startswith("."):
            left_out[name] = f"{folder / name}: its name begins with a dot"
            continue
        try:
            files[name] = read_inside(folder, name, record=folder, limit="artifact_bytes")
        except ConfigError as error:
            left_out[name] = str(error)
            continue
        size += len(files[name])
        require_within("import_file_bytes", size, str(folder))
    return RecordFiles(files, left_out)


def _names(folder: Path) -> Iterator[str]:
    """Yield the relative paths of all files below `folder`.

    For a dot folder, yield only the path of the dot folder itself.
    """
    seen = 0
    for place, folders, names in os.walk(folder):
        seen += len(folders) + len(names)
        require_within("import_folders", seen, str(folder))
        hidden = [name for name in folders if name.startswith(".")]
        folders[:] = [name for name in folders if name not in hidden]
        for name in (*hidden, *names):
            if name not in _OWN or Path(place) != folder:
                yield (Path(place) / name).relative_to(folder).as_posix()
