"""Which worker can run a turn: by the id of the agent and the schemas of its tools."""

from __future__ import annotations

from perdure import Agent, tool
from perdure.client.cluster.requirements import (
    Requirement,
    queue_name,
    requirement_in,
    requirement_of,
)


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(name="add")
def add_texts(a: str, b: str) -> str:
    """Add."""
    return a + b


MODEL = "scripted:echo"
WITH = Agent("helper", model=MODEL, tools=[add])
WITHOUT = Agent("helper", model=MODEL)
OTHER_SCHEMA = Agent("helper", model=MODEL, tools=[add_texts])
OTHER_NAME = Agent("other", model=MODEL, tools=[add])


def test_worker_with_agent_and_tools_meets_requirement() -> None:
    required = requirement_of(WITH.snapshot())
    assert required.is_met_by(WITH)
    for agent in (WITHOUT, OTHER_SCHEMA, OTHER_NAME, None):
        assert not required.is_met_by(agent)
    assert requirement_of(WITHOUT.snapshot()).is_met_by(WITH)


def test_tools_of_mcp_servers_are_required_by_server() -> None:
    snapshot = {
        **WITH.snapshot(),
        "tools": [{"name": "docs_find", "schema_hash": "x"}],
        "mcp_servers": [{"name": "docs", "tools": ["docs_find"], "left_out": []}],
    }
    required = requirement_of(snapshot)
    assert required == Requirement("helper", {}, ("docs",))
    assert not required.is_met_by(WITH)
    assert required.is_met_by(Agent("helper", model=MODEL, mcp_servers=["docs"]))


def test_equal_requirements_share_a_queue_within_a_namespace() -> None:
    one, two = requirement_of(WITH.snapshot()), requirement_of(OTHER_SCHEMA.snapshot())
    assert queue_name("a", one) == queue_name("a", requirement_of(WITH.snapshot()))
    assert len({queue_name("a", one), queue_name("a", two), queue_name("b", one)}) == 3


def test_unreadable_requirement_is_met_by_no_worker() -> None:
    required = requirement_of(WITH.snapshot())
    assert requirement_in(required.encoded()) == required
    assert requirement_in(b"[1]") is None
    assert requirement_of({"id": "helper", "tools": "none"}) == Requirement("helper")
    assert requirement_of(None) == Requirement("")
