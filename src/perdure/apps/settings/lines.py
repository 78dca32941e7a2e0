"""Finds the line of each key in a TOML file, because the TOML reader does not report lines.

The text must be valid TOML. Statements are split at quotes and brackets. The TOML reader then
parses each key separately.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import cast

from perdure.yaml.nodes import YamlNode

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|\n|[\[\]{}]',
    re.DOTALL,
)
_PIECE = re.compile(rf"{_TOKEN.pattern}|[^\s\[\]{{}}\"'#]", re.DOTALL)
_KEY = re.compile(r'((?:[A-Za-z0-9_.\s-]++|"(?:\\.|[^"\\])*+"|\'[^\']*+\')++)=')

Path = tuple[str, ...]


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of every table and key in the TOML `text`, and of the items of arrays.

    Units: lines count from 1. Shape: keys inside an inline table have the line of the table. An
    item of an array has the path of the array plus its index, such as ``[0]``.
    """
    found: dict[Path, int] = {}
    table: Path = ()
    for line, statement in _statements(text):
        if statement.startswith("["):
            table = _path_of(statement + "\n")
            _note(found, table, line)
        elif (key := _KEY.match(statement)) is not None:
            path = (*table, *_path_of(f"{key[1]} = 0"))
            _note(found, path, line)
            for number, place in enumerate(_item_lines(statement[key.end() :], line)):
                found[*path, f"[{number}]"] = place
    return found


def _note(found: dict[Path, int], path: Path, line: int) -> None:
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], line)


def _item_lines(value: str, line: int) -> Iterator[int]:
    """Yield the line of each item if `value`, which begins at `line`, is an array."""
    depth, is_begun = 0, False
    for piece in _PIECE.finditer(value if value.lstrip().startswith("[") else ""):
        word = piece.group()
        if depth == 1 and word == ",":
            is_begun = False
        elif depth == 1 and not is_begun and word not in "\n]":
            yield line
            is_begun = True
        depth += (word in "[{") - (word in "]}")
        line += word.count("\n")


def _path_of(toml: str) -> Path:
    """Return the path of keys in a document that contains only one table or key."""
    path: list[str] = []
    value: object = tomllib.loads(toml)
    while isinstance(value, dict | list) and value:
        if isinstance(value, list):
            value = cast("list[object]", value)[0]
            continue
        ((key, value),) = cast("dict[str, object]", value).items()
        path.append(key)
    return tuple(path)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement without comments, and the number of its first line."""
    depth, begun, line, start_line = 0, 0, 1, 1
    kept: list[str] = []
    text += "\n"  # which ends the last statement
    for token in _TOKEN.finditer(text):
        word = token.group()
        kept.append(text[begun : token.start()])
        begun = token.end()
        if word == "\n" and depth == 0:
            statement = "".join(kept).strip()
            if statement:
                yield start_line, statement
            kept, start_line = [], line + 1
        elif not word.startswith("#"):
            kept.append(word)
        depth += (word in "[{") - (word in "]}") if len(word) == 1 else 0
        line += word.count("\n")


def nodes_of(data: Mapping[str, object], text: str) -> YamlNode:
    """Return `data`, which was parsed from the TOML `text`, as nodes with line numbers."""
    return _node(data, (), lines_of(text), 1)


def _node(value: object, path: Path, lines: Mapping[Path, int], around: int) -> YamlNode:
    line = lines.get(path, around)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        pairs = tuple(
            (
                YamlNode(lines.get((*path, key), line), "str", key),
                _node(each, (*path, key), lines, line),
            )
            for key, each in fields.items()
        )
        return YamlNode(line, "map", pairs=pairs)
    if isinstance(value, list):
        items = tuple(
            _node(each, place if place in lines else path, lines, line)
            for number, each in enumerate(cast("list[object]", value))
            for place in [(*path, f"[{number}]")]
        )
        return YamlNode(line, "seq", items=items)
    if isinstance(value, bool):
        return YamlNode(line, "bool", str(value).lower())
    if isinstance(value, int):
        return YamlNode(line, "int", str(value))
    if isinstance(value, float):
        return YamlNode(line, "float", repr(value))
    kind = "timestamp" if isinstance(value, datetime | date | time) else "str"
    return YamlNode(line, kind, str(value))
