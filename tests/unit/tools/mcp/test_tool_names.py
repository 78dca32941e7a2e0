"""Names of a server's tools: valid for every provider, and unique."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from perdure.tools.mcp.server_tools import MAX_NAME, SHOWN_NAME, assign_names, tool_name


def test_tool_name_consists_of_prefix_and_original_name() -> None:
    assert tool_name("mcp_git_", "log") == "mcp_git_log"
    assert tool_name("mcp_git_", "odd/name.here") == "mcp_git_odd_name_here"


def test_long_name_is_shortened_for_providers_and_stays_unique() -> None:
    first, second = (tool_name("mcp_a_", "t" * 80 + end) for end in ("x", "y"))
    assert first is not None
    assert second is not None
    assert first != second
    assert len(first) == len(second) == SHOWN_NAME


def test_tool_whose_name_is_too_long_for_the_protocol_is_skipped() -> None:
    assert tool_name("mcp_a_", "t" * MAX_NAME) is None
    assert tool_name("mcp_a_", "") is None


def test_second_tool_with_an_equal_name_is_rejected() -> None:
    kept, refused = assign_names("mcp_a_", ["x.y", "x_y", "z"], taken=["mcp_a_z"])
    assert kept == {"mcp_a_x_y": "x.y"}
    assert set(refused) == {"x_y", "z"}


@given(st.lists(st.text(max_size=150), max_size=20))
def test_every_tool_gets_portable_name_or_reason(tools: list[str]) -> None:
    kept, refused = assign_names("mcp_a_", tools)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in kept)
    assert len(set(kept.values())) == len(kept)
    told = {tool[:MAX_NAME] for tool in kept.values()} | set(refused)
    assert {tool[:MAX_NAME] for tool in tools} == told
