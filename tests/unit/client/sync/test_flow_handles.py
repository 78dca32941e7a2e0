"""Flows without async."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import blocking
from perdure.client.agents.agent import Agent
from perdure.client.clock import SystemClock
from perdure.errors import FlowNotFound, FlowRefusal
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.session.flows.graph import FlowNode, Graph
from tests.fakes.flow_stage import ends, says


def test_unknown_name_in_the_blocking_module_raises_attribute_error() -> None:
    assert blocking.Flows.__name__ == "Flows"
    with pytest.raises(AttributeError, match="no attribute 'Ghost'"):
        _ = blocking.__getattr__("Ghost")


@pytest.mark.full_only
def test_flow_is_run_answered_and_watched_without_async(tmp_path: Path) -> None:
    alone = Graph("alone", (FlowNode("owner-intake", "owner"),))
    asking = "Which one?\n```handoff\ntype: prompt-human\n```"
    scenario = Scenario(
        name="flow",
        rules=(says("Node `owner-intake`", asking), ends("the blue one", "forward-pass-closed")),
    )
    with blocking.open("memory:") as store:
        models = ScriptedModel(scenario, clock=SystemClock())
        runtime = blocking.Runtime(store, [Agent("owner", model="scripted:flow")], models=models)
        flows = blocking.Flows(runtime)
        flow = flows.start(alone, workspace=tmp_path, id="f")
        assert flow.run().awaiting_human_nodes["owner-intake"].reason == "prompt-human"
        seen = flow.feed("owner")
        assert [item.type for item in seen.read(limit=1)] == ["activation"]
        (asked,) = store.questions()
        store.answer(asked.id, "the blue one", by="ana")
        assert flows.open("f").run().status == "awaiting_improvement_choice"
        assert [each.topic for each in flow.waiting()] == ["improvement-choice"]
        flow.choose_improvement("none")
        assert flow.run().status == "completed"
        late = list(flow.feed("owner", after=seen.cursor))
        assert [item.type for item in late][-2:] == ["user", "assistant"]
        assert flow.session("owner").messages()[-1].role == "assistant"
        assert [state.run.flow_id for state in flows.list()] == ["f"]
        with pytest.raises(FlowRefusal):
            flow.reply("again")
        with pytest.raises(FlowNotFound, match=r"Flows\.list"):
            flows.open("ghost")
