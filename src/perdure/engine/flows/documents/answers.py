"""Write the answers of nodes to files in the record folder; the log also contains each answer."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from perdure.engine.flows.files.record import Found
from perdure.engine.flows.files.runtime_files import replace_file
from perdure.engine.flows.rules.handoffs import Artifact
from perdure.session.ids import blob_hash
from perdure.stores.maintenance.file_lock import hold

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def kept_answer(record: Path, path: str, text: str) -> Found | None:
    """Write `text` to the file `path` of the record folder; return None if the text is blank.

    An existing file is replaced atomically. The function does not write through links. The call
    blocks.
    """
    if not text.strip():
        return None
    content = text.encode(errors="replace")
    try:
        _write(record, path, content)
    except OSError as error:
        problem = f"it cannot be written to {path} of the record: {error.strerror}"
        return Found(Artifact(path, problem=problem))
    return Found(Artifact(path, blob_hash(content)), content)


def _write(record: Path, path: str, content: bytes) -> None:
    folder, _, name = path.rpartition("/")
    root = os.open(record, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, dir_fd=root)
        place = os.open(folder, _FOLDER, dir_fd=root)
    finally:
        os.close(root)
    try:
        hold(place, record / folder)  # another process may start the same flow now
        replace_file(place, name, f".{name}.new", content, 0o644)
    finally:
        os.close(place)
