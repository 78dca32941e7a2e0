from __future__ import annotations

import pytest

from perdure.interop.workflow_export.agents import ExportedAgent
from perdure.interop.workflow_export.session import context_of, with_resolved_prompt
from perdure.session.notes import AgentBound, SessionStarted

WORKSPACE: dict[str, object] = {
    "working_dir": "/srv/shop",
    "git_ref": "main",
    "active_file": "a.py",
    "selection": {"file": "a.py", "start_line": 2, "end_line": 5},
    "variables": {"shop": "{{ctx.city}} and {{inputs.x}}", "city": "Ulm", "bad name": "x"},
}


def test_workflow_context_omits_the_working_directory() -> None:
    told = "{{ctx.shop}} {{ctx.git_ref}} {{ctx.selection}} {{ctx.working_dir}}"
    entries = context_of(AgentBound({"instructions": told}, WORKSPACE))
    assert {entry.key: entry.value for entry in entries} == {
        "city": "Ulm",
        "git_ref": "main",
        "selection": "a.py:2-5",
        "shop": "{ {ctx.city}} and { {inputs.x}}",
    }
    assert [entry.key for entry in entries] == sorted(entry.key for entry in entries)


@pytest.mark.parametrize(
    ("prompt", "written"),
    [
        ("For Ulm, {{x}}", "For Ulm, {{x}}"),
        ("For {{ctx.city}} {{secrets.K}}", "For { {ctx.city}} {{secrets.K}}"),
        (None, "template"),
    ],
)
def test_context_placeholders_of_an_exported_prompt_are_escaped(
    prompt: str | None, written: str
) -> None:
    agent = ExportedAgent({"system_prompt": "template"})
    resolved = with_resolved_prompt(agent, SessionStarted({}, WORKSPACE, prompt))
    assert resolved.definition["system_prompt"] == written


@pytest.mark.parametrize(
    "workspace", [None, {"variables": ["x"]}, {"variables": {"a": {}}}, {"selection": "x"}]
)
def test_unreadable_workspace_gives_an_empty_workflow_context(
    workspace: dict[str, object] | None,
) -> None:
    agent: dict[str, object] = {"instructions": "{{ctx.a}} {{ctx.selection}}"}
    assert context_of(SessionStarted(agent, workspace)) == ()
    assert context_of(SessionStarted({"instructions": ["x"]}, workspace)) == ()
