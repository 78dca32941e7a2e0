"""Checks of flow arguments beyond their types."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.client.flows.flow import Flow
from perdure.errors import ConfigError, FlowRefusal, WrongArgument

WORKFLOW = """workflow:
  name: one node
  nodes:
    - {id: owner-intake, role: owner}
  edges: []
"""


def runtime(store: perdure.Store) -> perdure.Runtime:
    return perdure.Runtime(store, [perdure.Agent("owner", model="scripted:echo")])


async def test_flow_start_with_invalid_ids_or_paths_stores_nothing(tmp_path: Path) -> None:
    file = tmp_path / "workflow.yaml"
    file.write_text(WORKFLOW)
    async with (
        perdure.open("memory:") as store,
        runtime(store) as made,
        perdure.Flows(made) as flows,
    ):
        for id in ("", "a b", "../x", "x" * 129, "a\0b", "x\n", "é"):
            with pytest.raises(WrongArgument, match="cannot be a flow id"):
                await flows.start(file, workspace=tmp_path, id=id)
        with pytest.raises(ConfigError, match="at most 112 together"):
            await flows.start(file, workspace=tmp_path, id="x" * 108)
        for name in ("", "a\0b"):
            with pytest.raises(WrongArgument, match="record_folder"):
                await flows.start(file, workspace=tmp_path, record_folder=name)
            with pytest.raises(WrongArgument, match="project"):
                await flows.start(file, workspace=tmp_path, project=name)
        assert await flows.list() == []
        assert not (tmp_path / ".perdure").exists()
        longest = await flows.start(file, workspace=tmp_path, id="x" * 107)
        assert (await longest.run()).awaiting_human_nodes


async def test_invalid_consent_arguments_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "workflow.yaml"
    file.write_text(WORKFLOW)
    async with (
        perdure.open("memory:") as store,
        runtime(store) as made,
        perdure.Flows(made) as flows,
    ):
        flow: Flow = await flows.start(file, workspace=tmp_path)
        before = (await flow.state()).head
        for command in ("", " ", "a\0b", "ls | wc", "make test"):
            with pytest.raises(ConfigError):
                await flow.consent("partial-access", command=command)
        for tool in ("", "\0", "mcp_x_y"):
            with pytest.raises(ConfigError):
                await flow.consent("partial-access", command=tool, tool="mcp")
        with pytest.raises(ConfigError, match="allowed: nothing"):
            await flow.consent(command="make test", is_revoked=True)
        with pytest.raises(ValueError, match="to revoke"):
            await flow.consent("no-access", is_revoked=True)
        for text in ("", " "):
            with pytest.raises(FlowRefusal):
                await flow.reply(text)
        assert (await flow.state()).head == before
