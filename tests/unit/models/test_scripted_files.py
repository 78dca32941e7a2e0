"""Scripted models that are loaded from files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import ConfigError, ModelRefused
from perdure.models.protocol import ModelRequest, TextDelta
from perdure.models.scripted_files import FiledScripts
from perdure.session.messages import user
from tests.fakes.clock import ManualClock


async def said(client: FiledScripts, model: str) -> str:
    deltas = client.stream(ModelRequest(model, (user("hi"),)))
    return "".join([delta.text async for delta in deltas if isinstance(delta, TextDelta)])


async def test_model_name_with_file_plays_its_scenario(tmp_path: Path) -> None:
    file = tmp_path / "trip.yaml"
    file.write_text("name: other\nmodel: {context_window: 9000}\nrules: [{text: Ahoy}]\n")
    client, model = FiledScripts(clock=ManualClock()), f"scripted:{file}"
    client.require(model)
    assert await said(client, model) == "Ahoy"
    assert client.info(model).context_window == 9000
    file.write_text("rules: [{text: Land}]\n")
    os.utime(file, ns=(1, 1))
    assert await said(client, model) == "Land"


async def test_model_name_without_a_file_selects_a_built_in_scenario() -> None:
    client = FiledScripts(clock=ManualClock())
    client.require("scripted:echo")
    assert "you wrote “hi”" in await said(client, "scripted:echo")


@pytest.mark.parametrize(("content", "told"), [(None, "cannot be read"), ("rules: 5", "line 1")])
async def test_file_that_is_not_a_scenario_is_reported(
    tmp_path: Path, content: str | None, told: str
) -> None:
    file = tmp_path / "trip.yml"
    if content is not None:
        file.write_text(content)
    client, model = FiledScripts(clock=ManualClock()), f"scripted:{file}"
    with pytest.raises(ConfigError, match=told):
        client.require(model)
    with pytest.raises(ModelRefused, match=told):
        await said(client, model)
    assert client.info(model).context_window is None
