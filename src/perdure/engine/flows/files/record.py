"""Read the artifacts of roles from the record folder of a flow, and nothing outside of it.

An agent names files in the record folder. A path is relative to the record folder or to the
workspace. In an imported flow, a path can begin with the former path of the record folder. The
resolved path is checked, so a link that leads out of the folder is rejected.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from perdure.bounds.limits import limits
from perdure.engine.flows.rules.handoffs import Artifact
from perdure.session.ids import blob_hash
from perdure.tools.paths.floors import is_secret
from perdure.tools.paths.own_places import floors_of, names_of_place


class Found(msgspec.Struct, frozen=True):
    """An artifact, with its content if the file can be handed over."""

    artifact: Artifact
    content: bytes = b""


class RecordFolder:
    """Reads the files of one flow. Blocks: call the methods in a thread, not on the event loop.

    For an imported flow, `former` is the path, relative to its workspace, that the record folder
    had when the flow was exported.
    """

    def __init__(self, folder: Path, workspace: Path, former: str = "") -> None:
        self.folder = folder
        self._workspace = workspace
        self._former = f"{former}/" if former else ""

    def look_up(self, names: Iterable[str]) -> dict[str, Found]:
        """Return the artifact at each path in `names`."""
        return {name: self._find(name) for name in names}

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """Map each of the canonical `paths` to the file's text, or to a notice if unreadable."""
        return {path: self._text(path) for path in paths}

    def _text(self, path: str) -> str:
        found = self._find(path)
        if found.artifact.problem is not None:
            return f"(this file cannot be read any more: {found.artifact.problem})"
        return found.content.decode(errors="replace")

    def _find(self, name: str) -> Found:
        try:
            path = self._canonical(name)
            if path is None:
                return _unusable(name, "it lies outside of the record folder")
            if self._is_closed(path):
                return _unusable(name, "it holds credentials or perdure's own data")
            return self._read(path)
        except (OSError, ValueError):
            return _unusable(name, "no such file")

    def _is_closed(self, path: str) -> bool:
        """Whether tools must not read the file at the canonical `path`."""
        names = path.split("/")
        place = names_of_place(Path(os.path.realpath(self.folder), path))
        return is_secret(names) or floors_of(os.environ).is_closed(place)

    def _canonical(self, name: str) -> str | None:
        """Return the path of `name` in the record folder, links resolved; None if it is outside.

        Raises: OSError if the file does not exist.
        """
        root = Path(os.path.realpath(self.folder, strict=True))
        workspace = Path(os.path.realpath(self._workspace))
        former = root / name.removeprefix(self._former)
        for found in (root / name, workspace / name, former):
            place = Path(os.path.realpath(found))
            if place.is_relative_to(root) and place != root and place.exists():
                return place.relative_to(root).as_posix()
        outside = Path(os.path.realpath(root / name, strict=True))
        return outside.relative_to(root).as_posix() if outside.is_relative_to(root) else None

    def _read(self, path: str) -> Found:
        descriptor = self._open(path)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return _unusable(path, "it is not a file")
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(limits().artifact_bytes + 1)
        if len(content) > limits().artifact_bytes:
            return _unusable(
                path, f"it exceeds limits.artifact_bytes = {limits().artifact_bytes:,}"
            )
        if not content.strip():
            return _unusable(path, "it is empty")
        return Found(Artifact(path, blob_hash(content)), content)

    def _open(self, path: str) -> int:
        """Open the file at a canonical path; return its descriptor.

        The function opens each folder on the path in turn and follows no links. The canonical path
        contains no links, so a link that is found now was added after the check of the path. The
        function never waits for a pipe.
        """
        *folders, name = path.split("/")
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        for step in (*folders, name):
            try:
                below = os.open(step, flags, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor


def _unusable(path: str, problem: str) -> Found:
    return Found(Artifact(path, problem=problem))
