"""A configuration that cannot work is rejected when it is chosen, and not when it is used."""

from __future__ import annotations

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.flows.role_setup import Equipment, agent_for
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE
from perdure.errors import ConfigError, WrongArgument
from perdure.models.router import ModelRouter
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from tests.fakes.clock import ManualClock

SCRIPTED = ScriptedModel(Scenario(name="flow"), clock=ManualClock())
OWNER = Agent("owner", model="scripted:flow", tools=["read_file"])


def equipment(*agents: Agent) -> Equipment:
    return Equipment(ModelRouter({"scripted": SCRIPTED}), {agent.id: agent for agent in agents})


def test_model_without_known_provider_is_rejected() -> None:
    known = equipment()
    known.check_models(("scripted:flow", "scripted:other"), "offered_models")
    with pytest.raises(WrongArgument, match="'flow' names no provider and model") as refused:
        known.check_models(("scripted:flow", "flow"), "offered_models")
    assert refused.value.argument == "offered_models"
    with pytest.raises(ConfigError, match="unknown model provider 'nobody'; available: scripted"):
        known.check_models(("scripted:flow", "nobody:x"), "offered_models")


def test_model_check_without_a_router_accepts_any_provider() -> None:
    Equipment(SCRIPTED, {}).check_models(("mine:x",), "model")
    with pytest.raises(WrongArgument):
        Equipment(SCRIPTED, {}).check_models(("mine",), "model")


def test_tools_of_a_role_are_checked_against_its_agent() -> None:
    known = equipment(OWNER)
    known.check_tools("owner_2", ("read_file",))
    with pytest.raises(ConfigError, match="owner_2 has no tool write_file; it has: read_file"):
        known.check_tools("owner_2", ("read_file", "write_file"))
    known.check_tools("owner", ("write_file",), ("write_file",))
    with pytest.raises(ConfigError, match="owner has no tool read_file; it has: write_file"):
        known.check_tools("owner", ("read_file",), ("write_file",))
    with pytest.raises(ConfigError, match="it has: none"):
        known.check_tools("owner", ("read_file",), ())


def test_tools_of_an_unknown_agent_are_not_checked() -> None:
    equipment(OWNER).check_tools("reviewer", ("anything",))
    with_server = Agent("reviewer", model="scripted:flow", mcp_servers=["files"])
    equipment(with_server).check_tools("reviewer", ("anything",))


def test_role_instance_without_an_agent_uses_the_agent_of_its_role() -> None:
    second = Agent("owner_2", model="scripted:flow")
    agents = {"owner": OWNER, "owner_2": second}
    assert agent_for(agents, "owner_2") is second
    assert agent_for(agents, "owner_3") is OWNER
    assert agent_for(agents, FEEDBACK_ROLE) is OWNER
    assert agent_for(agents, "reviewer") is None
