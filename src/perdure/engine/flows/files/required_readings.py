"""Read the files that a role must read first (its required readings), listed by name.

``a-docs/index.yaml`` of a project maps a ``$NAME`` to a file, relative to the project's folder.
``a-docs/roles/<role>/required-readings.yaml`` lists the names that a role reads first. A name that
is not in the index is an error with file and line, and the role does not start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from perdure.engine.flows.prompts.entry import RequiredText
from perdure.errors import ConfigError
from perdure.tools.paths.project_files import is_there, read_inside
from perdure.yaml.nodes import YamlNode, YamlReader

T = TypeVar("T")

DOCS = "a-docs"
INDEX = f"{DOCS}/index.yaml"
"""Path of the file that maps the names of a project's readings to their files."""

_NAME = re.compile(r"\$[A-Z][A-Z0-9_]*")


def project_folder(workspace: Path, project: str) -> Path:
    """Return the folder of `project` in `workspace` if it contains ``a-docs``, else `workspace`.

    Raises: ConfigError if the project's folder is not in `workspace`.
    """
    named = workspace / project
    if not Path(os.path.realpath(named)).is_relative_to(os.path.realpath(workspace)):
        raise ConfigError(f"the project {project!r} is not a folder in the workspace {workspace}")
    return named if (named / DOCS).is_dir() else workspace


class Library:
    """Reads the readings of one project.

    Blocks: call the methods in a thread, not on the event loop.
    """

    def __init__(self, project: Path) -> None:
        self._project = project

    @property
    def project(self) -> Path:
        """The folder of the project."""
        return self._project

    def of_role(self, role: str) -> tuple[RequiredText, ...]:
        """Return the required readings of the base role `role`, beginning with its own ``main.md``.

        Raises: ConfigError if a reading is not in the index or cannot be read.
        """
        place = f"{DOCS}/roles/{role}"
        own: tuple[RequiredText, ...] = ()
        if is_there(self._project, f"{place}/main.md"):
            own = (
                RequiredText(f"role {role}", f"{place}/main.md", self._text(f"{place}/main.md")),
            )
        name = f"{place}/required-readings.yaml"
        if not is_there(self._project, name):
            return own
        listed = read_key(self._text(name), name, "required_readings", _names)
        return (*own, *self._readings(listed))

    def by_name(self, names: Iterable[str], place: str) -> tuple[RequiredText, ...]:
        """Return the readings called `names`; `place` is the file that requires them.

        Raises: ConfigError if a reading is not in the index or cannot be read.
        """
        return self._readings([(name, place) for name in names])

    def faults(self) -> tuple[str, ...]:
        """Return the index entries whose file is missing, each as a sentence."""
        try:
            index = self._index()
        except ConfigError as error:
            return (str(error),)
        found: list[str] = []
        for name, (path, place) in index.items():
            try:
                self._inside(path, place)
            except ConfigError as error:
                found.append(f"{name}: {error}")
        return tuple(found)

    def _readings(self, wanted: Iterable[tuple[str, str]]) -> tuple[RequiredText, ...]:
        listed = tuple(wanted)
        index = self._index() if listed else {}
        found: list[RequiredText] = []
        for name, place in listed:
            if name not in index:
                known = ", ".join(index) or "nothing"
                raise ConfigError(f"{place}: {name} is not in {INDEX}, which has: {known}")
            path, where = index[name]
            self._inside(path, where)
            found.append(RequiredText(name, path, self._text(path)))
        return tuple(found)

    def _index(self) -> dict[str, tuple[str, str]]:
        """Map each name in the index to its path, and to the file and line that define it."""
        if not is_there(self._project, INDEX):
            return {}
        return read_key(self._text(INDEX), INDEX, "index", _paths)

    def _inside(self, path: str, place: str) -> None:
        root = Path(os.path.realpath(self._project))
        real = Path(os.path.realpath(root / path))
        if not real.is_relative_to(root):
            raise ConfigError(f"{place}: {path} lies outside of the project")
        if not real.is_file():
            raise ConfigError(f"{place}: there is no file {path}; write it, or take it away here")

    def _text(self, path: str) -> str:
        return read_inside(self._project, path).decode(errors="replace")


def read_key(text: str, name: str, key: str, values: Callable[[YamlReader, YamlNode, str], T]) -> T:
    """Return the result of `values` for the value of `key`, the only key that `text` can have.

    Raises: ConfigError with every fault and its line.
    """
    reader = YamlReader()
    root = reader.root(text)
    outer: Mapping[str, YamlNode] = {} if root is None else reader.mapping(root, (key,), (key,))
    found = values(reader, outer[key], name) if key in outer else None
    if reader.faults or found is None:
        raise ConfigError(f"{name}: {'; '.join(reader.faults)}")
    return found


def _names(reader: YamlReader, node: YamlNode, name: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for item in reader.items(node):
        text = reader.text(item)
        if item.kind == "str" and not _NAME.fullmatch(text):
            reader.fault(item, f"{text!r} is no name of the index: expected $NAME")
        found.append((text, f"{name}, line {item.line}"))
    return found


def _paths(reader: YamlReader, node: YamlNode, name: str) -> dict[str, tuple[str, str]]:
    fields = reader.mapping(node, [key.text for key, _ in node.pairs])
    for key, _ in node.pairs:
        if not _NAME.fullmatch(key.text):
            reader.fault(key, f"{key.text!r} is no name: expected $NAME in capitals")
    return {
        key: (reader.text(value), f"{name}, line {value.line}") for key, value in fields.items()
    }
