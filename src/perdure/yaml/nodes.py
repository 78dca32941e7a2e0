"""Read YAML strictly: every error is collected with its line, and reading continues.

An invalid value is reported and replaced by a harmless value, so one pass finds all errors in a
file. The reader uses YAML 1.2, where ``yes`` and ``on`` are text. No YAML tag can create an object.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from perdure.errors.advice import nearest_name
from perdure.errors.arguments import is_utf8

MAX_DEPTH = 50

MAX_REPEATED = 20_000
"""Maximum number of values that aliases repeat.

Without this limit, nested aliases could use up the memory.
"""

_TAG = "tag:yaml.org,2002:"
_NAMES = {
    "str": "text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "map": "a mapping",
    "seq": "a list",
}


class YamlNode(msgspec.Struct, frozen=True):
    """A value of the document, with its line number.

    Shape: `kind` is YAML's type name (``str``, ``int``, ``map``, ``seq``, …). `text` is the text of
    a scalar as written, `items` are the items of a list, and `pairs` are the keys and values of a
    mapping.
    """

    line: int
    kind: str
    text: str = ""
    items: tuple[YamlNode, ...] = ()
    pairs: tuple[tuple[YamlNode, YamlNode], ...] = ()


class YamlReader:
    """Converts nodes to values, and collects all errors in `faults`.

    `other_names` maps keys of other programs to the keys that error messages suggest.
    """

    def __init__(self, other_names: Mapping[str, str] | None = None) -> None:
        self._other_names = other_names or {}
        self._found: list[tuple[int, str]] = []
        self._seen: set[int] = set()
        self._repeated = 0

    @property
    def fault_count(self) -> int:
        """The number of errors found so far."""
        return len(self._found)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return all errors, each with its line, in the order of the lines."""
        ordered = sorted(self._found, key=lambda found: found[0])
        return tuple(f"line {line}: {what}" for line, what in ordered)

    def root(self, text: str) -> YamlNode | None:
        """Return the root node of the document; None if it is empty or `text` is not YAML."""
        # Imported lazily: most commands read no YAML.
        library: Any = importlib.import_module("perdure.yaml.parser")
        try:
            composed: Any = library.PlainYaml().compose(text)
        except library.MarkedYAMLError as error:
            # The library is untyped; it sets these attributes on every error with a position.
            marked: Any = error
            line = marked.problem_mark.line + 1 if marked.problem_mark else 1
            self._found.append((line, str(marked.problem or marked.context)))
            return None
        except library.ReaderError as error:
            wrong: Any = error
            line = text.count("\n", 0, int(wrong.position)) + 1
            self._found.append((line, f"the character {chr(wrong.character)!a} cannot stand here"))
            return None
        except (library.YAMLError, RecursionError) as error:
            self._found.append((1, " ".join(str(error).split())))
            return None
        if composed is None:
            self._found.append((1, "the file is empty"))
            return None
        return self._own(composed, 0)

    def fault(self, node: YamlNode, what: str) -> None:
        """Report the error `what` at `node`."""
        self._found.append((node.line, what))

    def mapping(
        self, node: YamlNode, known: Collection[str], required: Collection[str] = ()
    ) -> Mapping[str, YamlNode]:
        """Return the values of a mapping by key; unknown and missing required keys are errors."""
        if node.kind != "map":
            self._unexpected(node, f"a mapping with {', '.join(known)}")
            return {}
        found: dict[str, YamlNode] = {}
        for key_node, value in node.pairs:
            key = self._key(key_node, found)
            if key in known:
                found[key] = value
            else:
                near = self._near(key, known)
                advice = f"; did you mean {near!r}?" if near else f" (known: {', '.join(known)})"
                self.fault(key_node, f"{key!r} is unknown here{advice}")
        for key in required:
            if key not in found:
                self.fault(node, f"{key!r} is missing")
        return found

    def _near(self, key: str, known: Collection[str]) -> str | None:
        """Return the key in `known` that `key` probably means; None if none is similar."""
        other = self._other_names.get(key)
        if other in known:
            return other
        return nearest_name(key, known)

    def items(self, node: YamlNode) -> tuple[YamlNode, ...]:
        """Return the items of the list `node`; report an error if it is not a list."""
        if node.kind != "seq":
            self._unexpected(node, "a list")
        return node.items

    def text(self, node: YamlNode) -> str:
        """Return the text of `node`; report an error if it is not a text."""
        if node.kind == "str":
            return node.text
        self._unexpected(node, "text (in quotes, if it looks like something else)")
        return ""

    def choice(self, node: YamlNode, choices: Collection[str]) -> str:
        """Return the value of `node`, or the first of `choices` after reporting a wrong value."""
        if node.kind == "str" and node.text in choices:
            return node.text
        self.fault(node, f"{node.text or node.kind!r} is not one of {', '.join(choices)}")
        return next(iter(choices))

    def whole(self, node: YamlNode, least: int = 0) -> int:
        """Return the integer of `node`; report an error if it is no integer or below `least`."""
        value = self._plain(node)
        if node.kind == "int" and isinstance(value, int) and value >= least:
            return value
        self._unexpected(node, f"a whole number from {least} up")
        return least

    def number(self, node: YamlNode) -> float:
        """Return the number of `node`; report an error if it is not a number or is negative."""
        value = self._plain(node)
        if node.kind in ("int", "float") and isinstance(value, int | float) and value >= 0:
            return float(value)
        self._unexpected(node, "a number that is not negative")
        return 0.0

    def boolean(self, node: YamlNode) -> bool:
        """Return the boolean of `node`; report an error if it is not a boolean."""
        if node.kind != "bool":
            self._unexpected(node, "true or false")
        elif node.text.lower() not in ("true", "false"):
            self.fault(node, f"{node.text!r:.40} is neither true nor false")
        return node.text.lower() == "true"

    def data(self, node: YamlNode) -> object:
        """Return the value of `node` as plain JSON data."""
        if node.kind == "seq":
            return [self.data(item) for item in node.items]
        if node.kind != "map":
            return self._plain(node)
        found: dict[str, object] = {}
        for key_node, value in node.pairs:
            found[self._key(key_node, found)] = self.data(value)
        return found

    def _key(self, node: YamlNode, found: Mapping[str, object]) -> str:
        if node.kind != "str":
            self._unexpected(node, "text as a key")
        if node.text in found:
            self.fault(node, f"{node.text!r} is a duplicate key")
        return node.text

    def _plain(self, node: YamlNode) -> object:
        """Return the scalar `node` as a JSON value of its kind.

        For a kind that JSON does not have, such as a date, return the text.
        """
        digits = node.text.replace("_", "")
        match node.kind:
            case "null" | "map" | "seq":
                return None
            case "bool":
                return self.boolean(node)
            case "int":
                return self._int(node, digits)
            case "float":
                return self._float(node, digits)
            case _:
                return node.text

    def _int(self, node: YamlNode, digits: str) -> int:
        try:
            return int(digits, 10) if digits.lstrip("+-").isdecimal() else int(digits, 0)
        except ValueError:  # has an explicit tag, or thousands of digits
            self.fault(node, f"{node.text!r:.40} is no whole number that can be read")
            return 0

    def _float(self, node: YamlNode, digits: str) -> float:
        name = digits.lstrip("+-").lower()
        try:
            value = math.inf if name in (".inf", ".nan") else float(digits)
        except ValueError:  # has an explicit tag
            self.fault(node, f"{node.text!r:.40} is no number")
            return 0.0
        if math.isfinite(value):
            return value
        self.fault(node, f"{node.text:.40} cannot be written as JSON")
        return 0.0

    def _unexpected(self, node: YamlNode, expected: str) -> None:
        self.fault(node, f"expected {expected}, found {_NAMES.get(node.kind, node.kind)}")

    def _is_too_much(self, composed: Any) -> bool:
        if id(composed) not in self._seen:
            self._seen.add(id(composed))
            return False
        self._repeated += 1
        return self._repeated > MAX_REPEATED

    def _own(self, composed: Any, depth: int) -> YamlNode:
        """Convert `composed`, a node of the YAML library, to a `YamlNode`.

        An alias that contains itself is cut off at the depth limit.
        """
        line: int = composed.start_mark.line + 1
        kind = str(composed.tag).removeprefix(_TAG)
        if depth > MAX_DEPTH:
            self._found.append((line, "nested too deep"))
            return YamlNode(line, "null")
        if self._is_too_much(composed):
            if self._repeated == MAX_REPEATED + 1:
                self._found.append((line, f"aliases repeat more than {MAX_REPEATED} values"))
            return YamlNode(line, "null")
        if composed.id == "mapping":
            pairs = [self._pair(key, value, depth + 1) for key, value in composed.value]
            return YamlNode(line, kind, pairs=tuple(pairs))
        if composed.id == "sequence":
            items = [self._own(item, depth + 1) for item in composed.value]
            return YamlNode(line, kind, items=tuple(items))
        text = str(composed.value)
        if not is_utf8(text):
            self._found.append((line, "half of a character pair cannot be written as UTF-8"))
            text = ""
        return YamlNode(line, kind, text)

    def _pair(self, key: Any, value: Any, depth: int) -> tuple[YamlNode, YamlNode]:
        own, below = self._own(key, depth), self._own(value, depth)
        if (
            below.kind == "null" and not below.text
        ):  # the library places an empty value after the line end
            below = msgspec.structs.replace(below, line=own.line)
        return own, below
