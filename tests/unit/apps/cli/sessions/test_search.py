"""The options of the search command. tests/acceptance tests the command in its own process."""

from __future__ import annotations

import pytest

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.sessions.search import ROLES, SearchFilters, search
from perdure.apps.cli.store_options import CommonOptions


async def test_unknown_role_is_refused_before_store_is_opened() -> None:
    with pytest.raises(UsageMistake, match="unknown role 'nobody': use one of system, "):
        await search(
            ["word"], filters=SearchFilters(role=["nobody"]), common=CommonOptions("nonsense:")
        )


def test_role_option_accepts_every_role() -> None:
    assert {"user", "assistant", "tool", "title", "label", "summary"} < set(ROLES)
