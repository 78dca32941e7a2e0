"""The settings that count: each key from the layer nearest to the person that sets it.

Built-in < the person's file < the project's file < the environment < the command line. What a
project may only lower is the narrower of its value and the person's.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from perdure.apps.settings.document import AT_MOST, BUILT_IN, OF_PROJECTS, VARIABLES, Settings
from perdure.apps.settings.places import person_file, project_file
from perdure.errors import ConfigError, InvalidSettings, PerdureError

Source = Literal["built-in", "user", "project", "environment", "command line"]

_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that a layer gives for a key. `where` is a file and line, or a variable."""

    value: object
    source: Source
    where: str | None = None
    note: str | None = None


class Explained(msgspec.Struct, frozen=True):
    """What counts for `key`, and what else was said of it, the nearest first."""

    key: str
    said: Said
    overrides: tuple[Said, ...] = ()


class Layer(msgspec.Struct, frozen=True):
    """What one file says. Shape: by dotted key, only what stands in it."""

    source: Source
    file: Path
    values: Mapping[str, object] = {}
    text: str = ""


class Configuration:
    """The layers as they are for a process with `environment` in the folder `start`.

    Raises: InvalidSettings with every fault of a file and its line; ConfigError when one cannot be
    read.
    """

    def __init__(self, start: Path, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.person_file = person_file(environment)
        project = project_file(start)
        self.project_file = project
        self._layers = (
            _layer("user", self.person_file, self.person_file),
            *(() if project is None else (_layer("project", project, self.person_file),)),
        )

    def value(self, key: str) -> Any:
        """What counts for `key`."""
        return self.explained(key, has_lines=False).said.value

    def is_set(self, key: str) -> bool:
        """Whether any layer but the built-in one says something of `key`."""
        return self.explained(key, has_lines=False).said.source != "built-in"

    def explained(
        self, key: str, typed: object = None, option: str | None = None, *, has_lines: bool = True
    ) -> Explained:
        """What counts for `key`, from where. `typed` was given as `option` on the command line.

        Raises: ConfigError for a key that there is not.
        """
        if key not in BUILT_IN:
            raise ConfigError(f"there is no setting {key!r}; there are: {', '.join(BUILT_IN)}")
        said = Said(BUILT_IN[key], "built-in")
        others: list[Said] = []
        for layer in self._layers:
            if key in layer.values:
                where = _place(layer, key) if has_lines else None
                now = Said(layer.values[key], layer.source, where)
                said, other = _nearer(key, now, said)
                others.insert(0, other)
        for now in self._outer(key, typed, option):
            others.insert(0, said)
            said = now
        return Explained(key, said, tuple(others))

    def _outer(self, key: str, typed: object, option: str | None) -> list[Said]:
        variable = VARIABLES.get(key)
        found: list[Said] = []
        text = "" if variable is None else self._environment.get(variable, "").strip()
        if text:
            found.append(Said(text, "environment", f"${variable}"))
        if typed is not None:
            found.append(Said(typed, "command line", option))
        return found


def _nearer(key: str, now: Said, before: Said) -> tuple[Said, Said]:
    """What counts of two, and the other."""
    if now.source != "project" or key not in AT_MOST:
        return now, before
    if AT_MOST[key](before.value, now.value) == now.value:
        return now, before
    return before, msgspec.structs.replace(now, note="a project cannot widen what you allow")


def _layer(source: Source, file: Path, persons: Path) -> Layer:
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Layer(source, file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(str(file), ("line 1: it is not UTF-8",)) from error
    data = _data(file, text)
    is_project = source == "project"
    try:
        settings = msgspec.convert(data, Settings)
    except (msgspec.ValidationError, PerdureError) as error:
        raise _invalid(file, data, text, persons, str(error), is_project=is_project) from error
    values = {
        f"{table}.{key}": getattr(getattr(settings, table), key)
        for table, fields in data.items()
        for key in cast("dict[str, object]", fields)
    }
    if is_project and not values.keys() <= OF_PROJECTS.keys():
        raise _invalid(file, data, text, persons, "", is_project=True)
    return Layer(source, file, values, text)


def _data(file: Path, text: str) -> dict[str, object]:
    # By name: only those who have settings need it.
    reader: Any = importlib.import_module("tomllib")
    try:
        return cast("dict[str, object]", reader.loads(text))
    except ValueError as error:
        said = str(error)
        at = _AT.search(said)
        line = (at[1] if at else None) or len(text.splitlines()) or 1
        what = _AT.sub("", said)
        raise InvalidSettings(str(file), (f"line {line}: it is no TOML: {what}",)) from error


def _invalid(
    file: Path,
    data: Mapping[str, object],
    text: str,
    persons: Path,
    reason: str,
    *,
    is_project: bool,
) -> InvalidSettings:
    checking: Any = importlib.import_module("perdure.apps.settings.checking")
    faults = checking.faults_in(data, text, persons, is_project=is_project)
    return InvalidSettings(str(file), faults or (reason,))


def _place(layer: Layer, key: str) -> str:
    lines: Any = importlib.import_module("perdure.apps.settings.lines")
    found: dict[tuple[str, ...], int] = lines.lines_of(layer.text)
    line = found.get(tuple(key.split(".")))
    return str(layer.file) if line is None else f"{layer.file}:{line}"
