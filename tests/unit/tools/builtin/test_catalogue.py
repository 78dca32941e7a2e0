"""The built-in tools by name."""

from __future__ import annotations

import pytest

from perdure.errors import ConfigError
from perdure.tools.builtin.catalogue import BUILTIN, with_names
from perdure.tools.registry import registry_of

READING = ("read_file", "list_directory", "search_files", "read_media", "git_status", "end_session")


def test_name_resolves_to_tool() -> None:
    def own() -> str:
        """Do."""
        return ""

    assert with_names(["read_file", own]) == (BUILTIN["read_file"], own)


def test_unknown_name_error_lists_tools() -> None:
    with pytest.raises(ConfigError, match="write_file"):
        with_names(["rm"])


def test_all_of_them_fit_into_one_agent() -> None:
    assert registry_of(BUILTIN.values()).names == tuple(BUILTIN)


def test_every_tool_with_effects_needs_approval() -> None:
    governed = {name for name, spec in BUILTIN.items() if spec.action is not None}
    # Another agent's tools are approved one by one, like those of its caller.
    assert governed == set(BUILTIN) - set(READING) - {"invoke_agent"}
