"""The effective settings: for each key, the value from the layer with the highest priority.

From the lowest to the highest priority, the layers are: built-in values, the user's file, the
project's file, the environment, the command line. If a project can only restrict a key, the
stricter of the project's and the user's values applies.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from perdure.apps.settings.document import (
    AT_MOST,
    BUILT_IN,
    OF_PROJECTS,
    VARIABLES,
    FiledPrice,
    FiledServer,
    Settings,
)
from perdure.apps.settings.lookup import person_file, project_file
from perdure.bounds.files import read_named_text
from perdure.errors import ConfigError, InvalidSettings, PerdureError, WrongArgument
from perdure.models.catalogue import require_model_name
from perdure.models.prices import Price

Source = Literal["built-in", "user", "project", "environment", "command line"]

_CHECKING = "perdure.apps.settings.validation"

_AT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value of a key, as set in a layer.

    `where` is a file and line, or the name of a variable.
    """

    value: object
    source: Source
    where: str | None = None
    note: str | None = None


class Explained(msgspec.Struct, frozen=True):
    """The effective value of `key`, and the values it overrides, highest priority first."""

    key: str
    said: Said
    overrides: tuple[Said, ...] = ()


class FaultyServer(msgspec.Struct, frozen=True):
    """An invalid MCP server in a settings file; each fault in `faults` includes its line number."""

    name: str
    file: Path
    faults: tuple[str, ...]


class Layer(msgspec.Struct, frozen=True):
    """The content of one settings file.

    Shape: `values` maps the dotted keys in the file to values.
    """

    source: Source
    file: Path
    values: Mapping[str, object] = {}
    text: str = ""
    faulty_servers: tuple[FaultyServer, ...] = ()


class Configuration:
    """The layers of settings for a process that runs in the folder `start` with `environment`.

    If `is_lenient`, invalid MCP servers are left out; `faulty_servers` contains them.
    Raises: InvalidSettings, which lists every error of a file with its line; ConfigError if a file
    cannot be read.
    """

    def __init__(
        self, start: Path, environment: Mapping[str, str], *, is_lenient: bool = False
    ) -> None:
        self._environment = environment
        self.person_file = person_file(environment)
        project = project_file(start)
        self.project_file = project
        self._layers = (
            _layer("user", self.person_file, self.person_file, is_lenient=is_lenient),
            *(() if project is None else (_layer("project", project, self.person_file),)),
        )

    @property
    def faulty_servers(self) -> tuple[FaultyServer, ...]:
        """The invalid MCP servers that were left out."""
        return tuple(each for layer in self._layers for each in layer.faulty_servers)

    def value(self, key: str) -> Any:
        """Return the effective value of `key`."""
        return self.explain(key, has_lines=False).said.value

    @property
    def model(self) -> str | None:
        """The effective ``chat.model``; None if none is chosen.

        Raises: ConfigError if the environment names a model without a provider.
        """
        named = self.value("chat.model")
        if named is None:
            return None
        try:
            require_model_name(named)
        except WrongArgument as error:
            raise ConfigError(f"${VARIABLES['chat.model']}: {error}") from None
        return str(named)

    @property
    def timeouts(self) -> dict[str, Any]:
        """The fields of `Agent` for the timeouts of a model's provider, and their values.

        Units: each timeout is in seconds, or None.
        """
        names = ("first_byte_timeout_s", "stream_idle_timeout_s")
        return {name: self.value(f"chat.{name}") for name in names}

    @property
    def budget(self) -> dict[str, Any]:
        """The fields of `Agent` for the budget of a session, and their values."""
        names = ("max_cost_microcents", "on_exceed")
        return {name: self.value(f"chat.{name}") for name in names}

    @property
    def prices(self) -> dict[str, Price]:
        """The prices from the settings, by model."""
        filed: Mapping[str, FiledPrice] = self.value("models.prices")
        return {model: price.price for model, price in filed.items()}

    def is_set(self, key: str) -> bool:
        """Whether any layer except the built-in layer sets `key`."""
        return self.explain(key, has_lines=False).said.source != "built-in"

    def explain(
        self, key: str, typed: object = None, option: str | None = None, *, has_lines: bool = True
    ) -> Explained:
        """Return the value of `key` and where it comes from.

        `typed` is the value of the command line option `option`.

        Raises: ConfigError if the key is unknown.
        """
        if key not in BUILT_IN:
            raise ConfigError(f"unknown setting {key!r}; there are: {', '.join(BUILT_IN)}")
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
    """Return `now` and `before` in order of priority: first the value of `key` that applies."""
    if now.source != "project" or key not in AT_MOST:
        return now, before
    if AT_MOST[key](before.value, now.value) == now.value:
        return now, before
    return before, msgspec.structs.replace(now, note="a project cannot widen what you allow")


def _layer(source: Source, file: Path, persons: Path, *, is_lenient: bool = False) -> Layer:
    try:
        text = read_named_text(file).removeprefix("\ufeff")
    except (FileNotFoundError, NotADirectoryError):
        return Layer(source, file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(str(file), ("line 1: it is not UTF-8",)) from error
    data = _data(file, text)
    faulty: tuple[FaultyServer, ...] = ()
    if is_lenient:
        data, faulty = _without_faulty(file, data, text)
    is_project = source == "project"
    try:
        settings = msgspec.convert(data, Settings)
        for name, filed in (settings.mcp.servers or {}).items():
            filed.server(name)
    except (msgspec.ValidationError, PerdureError) as error:
        raise _invalid(file, data, text, persons, str(error), is_project=is_project) from error
    values = {
        f"{table}.{key}": getattr(getattr(settings, table), key)
        for table, fields in data.items()
        for key in cast("dict[str, object]", fields)
    }
    if is_project and not values.keys() <= OF_PROJECTS.keys():
        raise _invalid(file, data, text, persons, "", is_project=True)
    return Layer(source, file, values, text, faulty)


def _without_faulty(
    file: Path, data: dict[str, object], text: str
) -> tuple[dict[str, object], tuple[FaultyServer, ...]]:
    """Return `data` without the invalid MCP servers, and a list of these servers."""
    table = data.get("mcp")
    servers = cast("dict[str, object]", table).get("servers") if isinstance(table, dict) else None
    named = cast("dict[str, object]", servers) if isinstance(servers, dict) else {}
    left = {name: each for name, each in named.items() if _is_server(name, each)}
    if len(left) == len(named):
        return data, ()
    checking: Any = importlib.import_module(_CHECKING)
    faults: dict[str, tuple[str, ...]] = checking.faulty_servers(data, text)
    faulty = (FaultyServer(name, file, faults[name]) for name in named if name not in left)
    kept = {**cast("dict[str, object]", table), "servers": left}
    return {**data, "mcp": kept}, tuple(faulty)


def _is_server(name: str, data: object) -> bool:
    try:
        msgspec.convert(data, FiledServer).server(name)
    except (msgspec.ValidationError, PerdureError):
        return False
    return True


def _data(file: Path, text: str) -> dict[str, object]:
    # Imported lazily: needed only if there are settings.
    reader: Any = importlib.import_module("tomllib")
    try:
        return cast("dict[str, object]", reader.loads(text))
    except ValueError as error:
        said = str(error)
        at = _AT.search(said)
        line = (at[1] if at else None) or len(text.splitlines()) or 1
        what = _AT.sub("", said)
        raise InvalidSettings(str(file), (f"line {line}: invalid TOML: {what}",)) from error


def _invalid(
    file: Path,
    data: Mapping[str, object],
    text: str,
    persons: Path,
    reason: str,
    *,
    is_project: bool,
) -> InvalidSettings:
    checking: Any = importlib.import_module(_CHECKING)
    faults = checking.faults_in(data, text, persons, is_project=is_project)
    return InvalidSettings(str(file), faults or (reason,))


def _place(layer: Layer, key: str) -> str:
    lines: Any = importlib.import_module("perdure.apps.settings.lines")
    found: dict[tuple[str, ...], int] = lines.lines_of(layer.text)
    line = found.get(tuple(key.split(".")))
    return str(layer.file) if line is None else f"{layer.file}:{line}"
