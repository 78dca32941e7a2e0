"""The Python example of docs/flows.md, run with a scripted model."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path

import pytest

import perdure

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "flows.md"
SCENARIO = """
rules:
  - when: {user_contains: "Node `owner-intake` started", round: 1}
    text: Planning.
    calls: [{name: write_file, args: {path: rec/plan.md, content: "Write about trains."}}]
  - when: {user_contains: "Node `owner-intake` started", after_tool: write_file}
    text: "```handoff\\ntarget_node_id: write\\nartifact_path: plan.md\\n```"
  - when: {user_contains: "Node `write` started", round: 1}
    text: Writing.
    calls: [{name: write_file, args: {path: rec/page.md, content: "Trains leave at 7."}}]
  - when: {user_contains: "Node `write` started", after_tool: write_file}
    text: "```handoff\\ntarget_node_id: close\\nartifact_path: page.md\\n```"
  - when: {user_contains: "Node `close` started"}
    text: "Good.\\n```handoff\\ntype: forward-pass-closed\\n```"
"""


async def test_python_example_of_flows_runs_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO)
    (example,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    code = compile(example, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"__name__": "guide", "perdure": perdure, "model": f"scripted:{scenario}"}
    await asyncio.wait_for(eval(code, names), 60)
    asked, ended = capsys.readouterr().out.splitlines()
    assert asked.startswith("improvement-choice (")
    assert ended == "completed"
    assert (tmp_path / "site" / "rec" / "page.md").read_text() == "Trains leave at 7."
