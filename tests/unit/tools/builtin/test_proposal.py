"""Tools that need approval."""

from __future__ import annotations

from perdure.tools.builtin.proposal import proposing
from perdure.tools.decorator import tool


def test_decorator_proposing_sets_the_action_of_a_tool() -> None:
    @tool
    def send(to: str) -> str:
        """Send."""
        return to

    marked = proposing("egress", is_gated=True, config_only=frozenset(("key",)))(send)
    assert marked("x") == "x"
    assert (marked.name, marked.action, marked.is_gated) == ("send", "egress", True)
    assert marked.config_only == {"key"}
