"""The tools of one agent or session, by name."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import ConfigError, UnknownTool
from perdure.tools.decorator import tool
from perdure.tools.spec import ToolSpec

_HASH_BYTES = 16
_canonical = msgspec.json.Encoder(order="deterministic")


class Declaration(NamedTuple):
    """A tool as declared to a model, with the fields of ``models.protocol.ToolDeclaration``."""

    name: str
    description: str
    parameters: Mapping[str, object]


class ToolRegistry(ShortRepr, frozen=True):
    """A set of tools with unique names. Shape: `tools` are in the given order."""

    tools: tuple[ToolSpec, ...] = ()

    def __post_init__(self) -> None:
        counts = Counter(spec.name for spec in self.tools)
        if doubles := [name for name, count in counts.items() if count > 1]:
            reason = f"several tools have the same name: {', '.join(doubles)}"
            raise ConfigError(reason, argument="tools")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the tools, in order."""
        return tuple(spec.name for spec in self.tools)

    def get(self, name: str) -> ToolSpec:
        """Return the tool `name`.

        Raises: UnknownTool if there is no tool with this name.
        """
        for spec in self.tools:
            if spec.name == name:
                return spec
        raise UnknownTool(name, self.names)

    def declarations(self) -> tuple[Declaration, ...]:
        """Return the declarations of the tools for a model, in order."""
        return tuple(
            Declaration(spec.name, spec.description, spec.parameters) for spec in self.tools
        )

    def restrict(self, names: Iterable[str]) -> ToolRegistry:
        """Return a registry of only the tools `names`, in the order of this registry.

        Raises: ConfigError if this registry has no tool of one of the `names`, because a session
        can only restrict its agent.
        """
        wanted = frozenset(names)
        if missing := sorted(wanted - frozenset(self.names)):
            known = ", ".join(self.names) or "none"
            raise ConfigError(f"the agent has no tool {', '.join(missing)}; it has: {known}")
        return ToolRegistry(tuple(spec for spec in self.tools if spec.name in wanted))

    def schema_hash(self, name: str) -> str:
        """Return a hash of the name and the schema of the tool `name`, without descriptions.

        Shape: 32 hex digits, which are the same on every machine and for every order of keys.
        Raises: UnknownTool if there is no tool with this name.
        """
        content = _canonical.encode((name, _undescribed(self.get(name).parameters)))
        return hashlib.blake2b(content, digest_size=_HASH_BYTES).hexdigest()


def registry_of(tools: Iterable[ToolSpec | Callable[..., Any]]) -> ToolRegistry:
    """Return a registry of `tools`; a plain function becomes a tool of effect ``external``.

    Raises: ConfigError if two tools have the same name. Raises the errors of `tool` for a plain
    function.
    """
    return ToolRegistry(tuple(t if isinstance(t, ToolSpec) else tool(t) for t in tools))


def _undescribed(schema: Any) -> Any:
    """Return `schema` without descriptions, because a new description does not make a new tool."""
    if isinstance(schema, list):
        return [_undescribed(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    below = {**cast("Mapping[str, Any]", schema)}
    properties = below.pop("properties", None)
    shape = {key: _undescribed(value) for key, value in below.items() if key != "description"}
    if properties is not None:
        shape["properties"] = {name: _undescribed(value) for name, value in properties.items()}
    return shape
