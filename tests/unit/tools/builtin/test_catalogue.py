"""The built-in tools by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from perdure.errors import ConfigError
from perdure.tools.builtin.catalogue import BUILTIN, with_names
from perdure.tools.registry import registry_of
from perdure.tools.spec import Action

ACTIONS = get_args(Action)
GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "tools.md"


def test_built_in_tool_name_resolves_to_its_tool() -> None:
    def own() -> str:
        """Do."""
        return ""

    assert with_names(["read_file", own]) == (BUILTIN["read_file"], own)


def test_error_for_an_unknown_tool_name_lists_the_known_tools() -> None:
    with pytest.raises(ConfigError, match="write_file"):
        with_names(["rm"])


def test_all_built_in_tools_fit_into_one_agent() -> None:
    assert registry_of(BUILTIN.values()).names == tuple(BUILTIN)


def test_every_parameter_of_every_tool_is_described() -> None:
    for spec in BUILTIN.values():
        properties: Any = spec.parameters.get("properties", {})
        missing = [name for name, schema in properties.items() if not schema.get("description")]
        assert not missing, (spec.name, missing)
        assert "Args:" not in spec.description, spec.name


def test_guide_lists_each_tool_with_its_approval_rule() -> None:
    table = GUIDE.read_text(encoding="utf-8").partition("| Approved as |")[2].partition("\n\n")[0]
    listed: dict[str, bool] = {}
    for row in table.splitlines()[2:]:
        _, names, _, approved, _ = row.split("|")
        is_approved = approved.strip().partition(";")[0] in ACTIONS
        listed.update(dict.fromkeys(re.findall(r"`(\w+)`", names), is_approved))
    assert listed == {name: spec.action is not None for name, spec in BUILTIN.items()}
