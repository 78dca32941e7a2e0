"""Tools that need approval."""

from __future__ import annotations

from perdure.tools.builtin.proposal import proposing
from perdure.tools.decorator import tool


def test_tool_made_by_the_decorator_proposing_has_its_action_and_needs_approval() -> None:
    @tool
    def send(to: str) -> str:
        """Send."""
        return to

    marked = proposing("egress", is_gated=True, config_only=frozenset(("key",)))(send)
    assert marked("x") == "x"
    assert (marked.name, marked.action, marked.is_gated) == ("send", "egress", True)
    assert marked.config_only == {"key"}
