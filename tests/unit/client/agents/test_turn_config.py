"""The settings of the turns of an agent's sessions."""

from __future__ import annotations

from perdure.client.agents.agent import Agent
from perdure.client.conversation.workspace import Workspace
from perdure.engine.turns.config import Limits
from perdure.engine.turns.session_turns import Terms
from perdure.session.ids import StreamId
from tests.fakes.chats import MODEL, Stage

CHAIN = Agent("helper", model=MODEL, fallbacks=["scripted:echo", "scripted:last"])


def terms_for(agent: Agent, caps: Agent | None = None) -> Terms:
    host = Stage().runtime().host
    return host.running(StreamId("s"), agent, Workspace(), prompt="Be brief.", caps=caps).terms


def test_fallbacks_of_turn_exclude_its_current_model() -> None:
    terms = terms_for(CHAIN)
    own = terms.config_of(terms.models[0])
    assert [link.model for link in own.chain] == [MODEL, "scripted:echo", "scripted:last"]
    switched = terms.config_of("scripted:last")
    assert [link.model for link in switched.chain] == ["scripted:last", "scripted:echo"]


def test_turn_can_have_the_limits_and_budget_of_another_agent() -> None:
    caps = Agent("parent", model=MODEL, limits=Limits(max_turns=2), max_cost_microcents=7)
    config = terms_for(CHAIN, caps).config_of(MODEL)
    assert (config.agent, config.limits.max_turns) == ("helper", 2)
    assert config.budget == caps.budget


def test_requests_contain_settings_of_agent() -> None:
    agent = Agent("helper", model=MODEL, thinking_level="high", temperature=0.5)
    settings = terms_for(agent).settings
    assert (settings.system, settings.thinking_level) == ("Be brief.", "high")
    assert settings.temperature == 0.5
    assert settings.size > 0
