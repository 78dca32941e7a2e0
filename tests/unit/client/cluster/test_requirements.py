"""Which worker can run a turn: by the id of the agent and the schemas of its tools."""

from __future__ import annotations

import pytest

from perdure import Agent, tool
from perdure.client.cluster.requirements import (
    FLOW_QUEUE,
    Requirement,
    flow_requirement,
    is_served,
    needed_agent,
    queue_name,
    requirement_of,
)
from perdure.errors import WrongArgument
from perdure.session.flows.kinds import FlowRequested
from tests.fakes.samples import case


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


def test_worker_with_the_required_agent_and_tools_meets_the_requirement() -> None:
    required = requirement_of(WITH.snapshot())
    assert required.is_met_by(WITH)
    for agent in (WITHOUT, OTHER_SCHEMA, OTHER_NAME, None):
        assert not required.is_met_by(agent)
    assert requirement_of(WITHOUT.snapshot()).is_met_by(WITH)


def test_worker_needs_the_mcp_server_but_not_each_mcp_tool() -> None:
    snapshot = {
        **WITH.snapshot(),
        "tools": [{"name": "docs_find", "schema_hash": "x"}],
        "mcp_servers": [{"name": "docs", "tools": ["docs_find"], "left_out": []}],
    }
    required = requirement_of(snapshot)
    assert required == Requirement("helper", {}, ("docs",))
    assert not required.is_met_by(WITH)
    assert required.is_met_by(Agent("helper", model=MODEL, mcp_servers=["docs"]))


def test_queue_name_depends_on_namespace_and_requirement() -> None:
    one, two = requirement_of(WITH.snapshot()), requirement_of(OTHER_SCHEMA.snapshot())
    assert queue_name("a", one) == queue_name("a", requirement_of(WITH.snapshot()))
    assert len({queue_name("a", one), queue_name("a", two), queue_name("b", one)}) == 3


def test_no_worker_meets_an_unreadable_requirement() -> None:
    required = requirement_of(WITH.snapshot())
    assert is_served(required.encoded(), {"helper": WITH})
    assert not is_served(b"[1]", {"helper": WITH})
    assert requirement_of({"id": "helper", "tools": "none"}) == Requirement("helper")
    assert requirement_of(None) == Requirement("")


def test_worker_needs_the_agents_of_all_roles_of_a_flow() -> None:
    agents = (needed_agent(WITH), needed_agent(OTHER_NAME))
    required = flow_requirement(FlowRequested(agents, ("/srv/site", "/srv/site/record")))
    assert required.agent == "flow: helper, other"
    both = {"helper": WITH, "other": OTHER_NAME}
    assert is_served(required.encoded(), both)
    assert not is_served(required.encoded(), {"helper": WITH})
    assert not is_served(required.encoded(), {**both, "helper": OTHER_SCHEMA})


def test_requirement_of_a_flow_is_never_the_id_of_an_agent() -> None:
    for needed in ((), (needed_agent(WITH),)):
        required = flow_requirement(FlowRequested(needed, ("/srv/site", "/srv/site/record")))
        with case(required), pytest.raises(WrongArgument, match="invalid agent id"):
            Agent(required.agent, model="scripted:echo")


def test_flows_with_equal_agents_share_a_separate_queue() -> None:
    flow = flow_requirement(FlowRequested((needed_agent(WITH),), ("/a", "/a/record")))
    other = flow_requirement(FlowRequested((needed_agent(WITH),), ("/b", "/b/record")))
    assert queue_name("a", flow) == queue_name("a", other)
    assert queue_name("a", flow).startswith(FLOW_QUEUE)
    assert queue_name("a", flow) != queue_name("a", requirement_of(WITH.snapshot()))
