"""The files of a record folder that perdure writes itself, apart from the workflow.

``record.yaml`` contains the name of the record; ``improvement.yaml`` contains, as a workflow, the
order in which the roles review the flow.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.errors import ConfigError
from perdure.session.flows.graph import Graph
from perdure.session.flows.run import IMPROVEMENT_FILE
from perdure.yaml.writer import yaml_of

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

RECORD_FILE = "record.yaml"


def write_record_file(record: Path, name: str | None, summary: str | None) -> None:
    """Write ``record.yaml`` into the folder `record`, unless it exists. The call blocks.

    Raises: ConfigError if the file cannot be written.
    """
    if not os.path.lexists(record / RECORD_FILE):
        _put(record, RECORD_FILE, yaml_of({"record": {"name": name, "summary": summary}}))


def write_improvement_file(record: Path, order: Graph) -> None:
    """Write ``improvement.yaml`` into the folder `record`. The call blocks.

    Raises: ConfigError if the file cannot be written.
    """
    plain = msgspec.structs.replace(order, invariants=(), escalation=())
    _put(record, IMPROVEMENT_FILE, workflow_text(plain))


class ImprovementFile:
    """``improvement.yaml`` of one record folder; it is written when its content changes."""

    def __init__(self, record: Path) -> None:
        self._record = record
        self._written: Graph | None = None

    async def write(self, order: Graph) -> None:
        """Write `order`, unless this process has already written it.

        Raises: ConfigError if the file cannot be written.
        """
        if order != self._written:
            await asyncio.to_thread(write_improvement_file, self._record, order)
            self._written = order


def _put(folder: Path, name: str, text: str) -> None:
    """Write the whole file `name`. An existing file or link is replaced; links are not followed."""
    draft = f".{name}.{os.getpid()}.{threading.get_ident()}.new"
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_file(descriptor, name, draft, text.encode(), 0o666)
        finally:
            os.close(descriptor)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(f"{folder / name} cannot be written: {why}") from error


def replace_file(folder: int, name: str, draft: str, content: bytes, mode: int) -> None:
    """Replace the file `name` in the open folder; the new file is first written as `draft`."""
    with suppress(FileNotFoundError):  # left by a dead process
        os.unlink(draft, dir_fd=folder)
    with os.fdopen(os.open(draft, _NEW, mode, dir_fd=folder), "wb") as file:
        file.write(content)
    os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
