"""The MCP server of a store."""

from __future__ import annotations

import sys

import pytest

import perdure
from perdure.apps.mcp_server.history import Scope
from perdure.apps.mcp_server.server import server_of
from perdure.errors import ConfigError


async def test_error_for_a_missing_mcp_library_contains_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    async with perdure.open("memory:") as store:
        with pytest.raises(ConfigError, match=r"perdure\[mcp\]"):
            await server_of(store, Scope(None, is_all=False), is_writable=False)


@pytest.mark.full_only
async def test_each_server_shows_only_the_sessions_of_its_scope() -> None:
    async with perdure.open("memory:") as store:
        for subject in ("ana", "bob"):
            await store.create(title=f"About {subject}", id=subject, subject=subject)
        for subject, other in (("ana", "bob"), ("bob", "ana")):
            server = await server_of(store, Scope(subject, is_all=False), is_writable=False)
            listed = repr(await server.call_tool("list_sessions", {}))
            assert f"About {subject}" in listed
            assert f"About {other}" not in listed


@pytest.mark.full_only
async def test_only_the_tool_that_forgets_a_fact_is_announced_as_destructive() -> None:
    async with perdure.open("memory:") as store:
        server = await server_of(store, Scope(None, is_all=False), is_writable=True)
        hints = {each.name: each.annotations for each in await server.list_tools()}
    assert [name for name, hint in hints.items() if hint.destructive_hint] == ["forget"]
    assert all(hint.destructive_hint is not None for hint in hints.values())
    writing = {name for name, hint in hints.items() if not hint.read_only_hint}
    assert writing == {"remember", "correct", "forget"}
