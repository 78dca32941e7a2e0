from __future__ import annotations

from typing import Annotated

import pytest

from perdure.errors import ConfigError, UnknownTool
from perdure.models.protocol import ToolDeclaration
from perdure.tools.decorator import tool
from perdure.tools.registry import ToolRegistry, registry_of


@tool(effect="read")
def look(path: str, depth: int = 1) -> None:
    """Look there."""


def send(to: str) -> None:
    """Send it."""


def test_plain_function_becomes_a_tool_with_cautious_defaults() -> None:
    registry = registry_of([look, send])
    assert registry.names == ("look", "send")
    assert registry.get("look") is look
    assert registry.get("send").effect == "external"


def test_registry_error_lists_duplicate_tool_names() -> None:
    with pytest.raises(ConfigError, match=r"same name: look, send$"):
        registry_of([look, send, tool(name="other")(send), look, send])
    with pytest.raises(ConfigError):
        ToolRegistry((look, look))


def test_error_for_unknown_tool_lists_known_tools() -> None:
    with pytest.raises(UnknownTool, match="available: look, send") as caught:
        registry_of([look, send]).get("delete")
    assert caught.value.known == ("look", "send")


def test_tool_registry_can_be_restricted_but_not_extended() -> None:
    registry = registry_of([look, send])
    assert registry.restrict(["send", "look", "send"]).names == ("look", "send")
    assert registry.restrict(["send"]).names == ("send",)
    assert registry.restrict([]).names == ()
    with pytest.raises(ConfigError, match="no tool delete, drop; it has: look, send"):
        registry.restrict(["look", "drop", "delete"])
    with pytest.raises(ConfigError, match="no tool send"):
        registry.restrict(["look"]).restrict(["send"])


def test_tool_declaration_has_name_description_and_parameters() -> None:
    (declaration,) = registry_of([send]).declarations()
    told = ToolDeclaration(*declaration)
    assert (told.name, told.description, told.parameters) == (
        "send",
        "Send it.",
        registry_of([send]).get("send").parameters,
    )


def test_schema_hash_depends_only_on_name_and_schema() -> None:
    hashed = registry_of([send]).schema_hash("send")

    def other_words(to: Annotated[str, "Who gets it."]) -> None:
        """Post it."""

    def other_type(to: int) -> None:
        """Send it."""

    reworded = tool(name="send", effect="read")(other_words)
    assert registry_of([reworded]).schema_hash("send") == hashed
    assert registry_of([tool(name="send")(other_type)]).schema_hash("send") != hashed
    assert registry_of([tool(name="post")(send)]).schema_hash("post") != hashed


def test_schema_hash_never_changes_between_versions() -> None:
    def note(description: str, at: list[tuple[int, int]]) -> None: ...

    assert registry_of([note]).schema_hash("note") == "6159c1fb44dcc87b11526fb2df622d81"
    assert registry_of([send]).schema_hash("send") == "c6dcea87ba394ee5d4fd007642e94d98"


def test_schema_hash_of_an_unknown_tool_is_rejected() -> None:
    with pytest.raises(UnknownTool):
        registry_of([]).schema_hash("send")
