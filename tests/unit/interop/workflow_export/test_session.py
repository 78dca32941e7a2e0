"""Sessions exported as workflows match `docs/workflow-format.md`."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings

from perdure.interop.formats.bundles import leaf_of
from perdure.interop.reports import Dialect
from perdure.interop.workflow_export.session import file_name, render_workflow, workflow_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.kinds import Compaction
from perdure.session.messages import (
    assistant,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import AgentBound, SessionInfoChanged, SessionStarted
from perdure.workflow.document import AgentNode, Workflow
from perdure.workflow.reader import parse
from perdure.workflow.writer import serialize
from tests.fakes.bundles import Making, bundle_of_log
from tests.fakes.random_logs import random_logs
from tests.fakes.tree_log import TreeLog

AGENT: dict[str, object] = {"id": "helper", "model": "anthropic:m", "instructions": "Be brief."}


def turns(workflow: Workflow) -> list[AgentNode]:
    return [node for node in workflow.nodes if isinstance(node, AgentNode)]


def exported(making: Making, dialect: Dialect = "perdure") -> Workflow:
    return workflow_of(making.made(), leaf_of(making.entries), dialect).workflow


def facts(workflow: Workflow, key: str = "perdureExport") -> dict[str, Any]:
    found = workflow.metadata[key]
    assert isinstance(found, dict)
    return cast("dict[str, Any]", found)


def test_turn_of_several_entries_is_exported_as_one_node() -> None:
    making = Making()
    making.say(user("Fix it"), user("please"))
    making.say(assistant("Let me see.", tool_call("c1", "read"), tool_call("c2", "find")))
    making.say(tool_result("c1", "x"), tool_result("c2", "y"))
    making.say(assistant(tool_call("c3", "read")), tool_result("c3", "x"), assistant("Fixed."))
    making.say(user("And now?"), assistant("I will look.", tool_call("c4", "read")))
    made = workflow_of(making.made(), leaf_of(making.entries), "perdure")
    (node,) = turns(made.workflow)
    assert node == AgentNode("turn-1", "exported-agent", "Fix it\n\nplease", ("read", "find"))
    assert made.omitted == 1
    assert len(facts(made.workflow)["messages"]) == 10


def test_user_text_is_escaped_in_exported_templates() -> None:
    making = Making()
    making.say(user("Say {{ secrets.X }} and {{{"), assistant("No."))
    text = render_workflow(making.made(), leaf_of(making.entries), "relavium").content.decode()
    workflow = parse(text)
    assert turns(workflow)[0].prompt_template == "Say { { secrets.X }} and { { {"
    said = facts(workflow, "relaviumExport")["messages"][0]["content"][0]["text"]
    assert said == "Say {{ secrets.X }} and {{{"
    assert serialize(workflow) == text


def test_nodes_form_a_line_and_have_consecutive_numbers() -> None:
    making = Making()
    making.say(user("a"), assistant("A"), user("b"), assistant(""), user("c"), assistant("C"))
    workflow = exported(making)
    assert [node.id for node in workflow.nodes] == ["input", "turn-1", "turn-2", "output"]
    assert [(edge.source, edge.target) for edge in workflow.edges] == [
        *(("input", "turn-1"), ("turn-1", "turn-2"), ("turn-2", "output"))
    ]
    assert [node.prompt_template for node in turns(workflow)] == ["a", "c"]


def test_export_of_unanswered_session_has_no_agent_node() -> None:
    making = Making()
    making.say(user("Hello?"))
    workflow = exported(making)
    assert [node.id for node in workflow.nodes] == ["input", "output"]
    assert len(workflow.edges) == 1
    empty = workflow_of(Making().made(), None, "perdure").workflow
    assert facts(empty)["messages"] == []


def test_answer_without_a_user_message_becomes_a_node_without_prompt() -> None:
    making = Making()
    making.say(assistant("Welcome."), user("Hi"), assistant("Hello."))
    assert [node.prompt_template for node in turns(exported(making))] == [None, "Hi"]


def test_agent_of_session_becomes_agent_of_document() -> None:
    making = Making()
    making.note(SessionStarted(agent=AGENT))
    making.say(user("a"), assistant("A"))
    workflow = exported(making)
    assert [agent["id"] for agent in workflow.agents] == ["helper"]
    assert turns(workflow)[0].agent_ref == facts(workflow)["agentSlug"] == "helper"
    assert parse(serialize(workflow)) == workflow


def test_export_without_an_agent_gives_a_warning() -> None:
    making = Making()
    making.say(user("a"), assistant("A"))
    assert not exported(making).agents
    remarks = render_workflow(making.made(), leaf_of(making.entries), "perdure").warnings
    assert remarks == ("the session has no agent: put yours in place of 'exported-agent'",)
    making.note(AgentBound(AGENT))
    assert exported(making).agents


@pytest.mark.parametrize(
    ("dialect", "key", "id", "file"),
    [
        ("perdure", "perdureExport", "cafe", "s.workflow.yaml"),
        ("relavium", "relaviumExport", "caf", "s.relavium.yaml"),
    ],
)
def test_workflow_dialect_determines_id_and_file_name(
    dialect: Dialect, key: str, id: str, file: str
) -> None:
    making = Making()
    making.note(SessionInfoChanged(title="Café"))
    workflow = exported(making, dialect)
    assert (list(workflow.metadata), workflow.id, workflow.name) == ([key], id, "Café")
    assert facts(workflow, key)["title"] == "Café"
    assert file_name(StreamId("s"), dialect) == file


def test_session_without_a_title_is_exported_with_a_default_id() -> None:
    making = Making(StreamHeader(StreamId("s"), 5))
    making.say(user("a"), assistant("A"))
    workflow = exported(making)
    assert (workflow.id, workflow.name) == ("exported-session", None)
    assert "title" not in facts(workflow)
    assert facts(workflow)["createdAt"] == "1970-01-01T00:00:00.005Z"


def test_branch_is_exported_and_other_branches_are_counted() -> None:
    making = Making()
    root = making.say(user("a"))
    left = making.say(assistant("left"), user("more"), assistant("no"))
    making.say(assistant("right"), parent=root)
    made = workflow_of(making.made(), leaf_of(making.entries), "perdure")
    assert made.left_out == 3
    assert [m["sequenceNumber"] for m in facts(made.workflow)["messages"]] == [0, 1]
    assert workflow_of(making.made(), EntryId(left), "perdure").left_out == 1


def test_compaction_is_reported_and_is_not_a_turn() -> None:
    making = Making()
    making.say(user("a"), assistant("A"), Compaction("So far"), user("b"), assistant("B"))
    workflow = exported(making)
    assert len(turns(workflow)) == 2
    roles = [message["role"] for message in facts(workflow)["messages"]]
    assert roles == ["user", "assistant", "system", "user", "assistant"]


def test_entries_outside_the_tree_do_not_change_the_workflow_export() -> None:
    making = Making()
    making.say(user("a"), assistant("A"))
    before = render_workflow(making.made(), leaf_of(making.entries), "perdure")
    making.note(SessionStarted())
    assert (
        render_workflow(making.made(), leaf_of(making.entries), "perdure").content == before.content
    )


@pytest.mark.full_only
@given(random_logs())
@settings(max_examples=10, deadline=None)
def test_export_of_any_session_is_a_readable_workflow(log: TreeLog) -> None:
    bundle, leaf = bundle_of_log(log, log.leaf), log.leaf
    first, second = (render_workflow(bundle, leaf, "perdure").content for _ in range(2))
    assert first == second
    assert serialize(parse(first.decode())) == first.decode()


def bound_in(workspace: dict[str, object], instructions: str, prompt: str) -> Making:
    making = Making()
    agent = {**AGENT, "model": "scripted:echo", "instructions": instructions}
    making.note(SessionStarted(agent, workspace, prompt))
    making.say(user("a"), assistant("A"))
    return making


WORKSPACE: dict[str, object] = {
    "working_dir": "/srv/shop",
    "git_ref": "main",
    "active_file": "a.py",
    "selection": {"file": "a.py", "start_line": 2, "end_line": 5},
    "variables": {"shop": "{{ctx.city}} and {{inputs.x}}", "city": "Ulm", "bad name": "x"},
}


def test_variables_of_the_workspace_become_the_context_of_the_workflow() -> None:
    making = bound_in(WORKSPACE, "For {{ctx.shop}} on {{ctx.git_ref}}, {{ctx.selection}}", "-")
    text = render_workflow(making.made(), leaf_of(making.entries), "perdure").content.decode()
    workflow = parse(text)
    assert serialize(workflow) == text
    assert {entry.key: entry.value for entry in workflow.context} == {
        "city": "Ulm",
        "git_ref": "main",
        "selection": "a.py:2-5",
        "shop": "{ {ctx.city}} and { {inputs.x}}",
    }
    assert workflow.agents[0]["system_prompt"] == (
        "For {{ctx.shop}} on {{ctx.git_ref}}, {{ctx.selection}}"
    )


@pytest.mark.parametrize(
    ("prompt", "written_as"),
    [("For Ulm, {{x}}", "For Ulm, {{x}}"), ("For {{ctx.city}}", "For { {ctx.city}}")],
)
def test_relavium_export_contains_the_resolved_prompt_and_no_context(
    prompt: str, written_as: str
) -> None:
    making = bound_in(WORKSPACE, "For {{ctx.shop}}", prompt)
    workflow = exported(making, "relavium")
    assert workflow.context == ()
    assert workflow.agents[0]["system_prompt"] == written_as


def test_lost_settings_and_secrets_in_instructions_cause_warnings() -> None:
    making = Making()
    making.note(
        SessionStarted({**AGENT, "limits": {"max_turns": 3}, "instructions": "Use {{secrets.KEY}}"})
    )
    warnings = render_workflow(making.made(), None, "relavium").warnings
    assert "settings of the agent that this format does not hold: limits" in warnings
    assert any("{{secrets.KEY}}: secrets are never filled in" in each for each in warnings)
