"""Roles that are added to a workflow while its flow runs."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.flows.flows import Flows
from perdure.models.scenario import CallTools, Reply, ScriptedCall, When
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from tests.fakes.flow_stage import FREE, MODEL, FlowStage, ends, hands

INTAKE = "Node `owner-intake`"
REDRAWN = """workflow:
  name: grown
  nodes:
    - {id: owner-intake, role: owner}
    - {id: extra, role: newcomer_2}
    - {id: end, role: owner}
  edges:
    - {from: owner-intake, to: extra}
    - {from: extra, to: end}
"""
SHORT = Graph(
    "grown",
    (FlowNode("owner-intake", "owner"), FlowNode("end", "owner")),
    (FlowEdge("owner-intake", "end"),),
)
FILES = {"record/workflow.yaml": REDRAWN, "record/plan.md": "the plan"}


@pytest.mark.parametrize("has_default", [True, False])
async def test_node_of_added_role_waits_until_role_has_an_agent(
    tmp_path: Path, has_default: bool
) -> None:
    calls = tuple(
        ScriptedCall("write_file", json.dumps({"path": path, "content": text}))
        for path, text in FILES.items()
    )
    stage = FlowStage(
        tmp_path,
        Reply(when=When(user_contains=INTAKE, after="user"), steps=(CallTools(calls),)),
        hands(INTAKE, "record", "plan.md", "extra")[1],
        *hands("Node `extra`", "record", "more.md", "end"),
        ends("Node `end`", "forward-pass-closed"),
    )
    settings: dict[str, Any] = {"model": MODEL, "tools": ["write_file"], "permissions": FREE}
    runtime = Runtime(stage.store, [Agent("owner", **settings)], models=stage.models)
    make = partial(Agent, **settings) if has_default else None
    flow = await Flows(runtime, default_agent=make).start(
        SHORT, workspace=tmp_path, record_folder="record", consent="full-access"
    )
    run = await flow.run()
    if has_default:
        assert run.status == "awaiting_improvement_choice"
        assert "extra" in run.visited_node_ids
    else:
        (waiting,) = await flow.waiting()
        assert (waiting.target, waiting.topic) == ("extra", "autonomous-abort")
        assert "role 'newcomer_2' has no agent: give the runtime one with the id" in waiting.text
