"""A release of the SDK without the private names for stored approvals causes a clear error."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from agents import Runner, RunState

import perdure
from perdure.adapters.openai_agents import PerdureSession
from perdure.adapters.openai_agents.approvals import SUPPORTED
from perdure.errors import ConfigError
from tests.integration.adapters.openai_agents.children.asking import CONFIG, answering, asking

ROOT = Path(__file__).parents[4]


def test_package_extra_requires_exactly_the_supported_sdk_releases() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras["optional-dependencies"]["openai-agents"] == [SUPPORTED]


class Renamed:
    """A run state of an SDK release in which the attribute `name` has another name."""

    def __init__(self, state: RunState[Any, Any], name: str) -> None:
        self._state, self._name = state, name

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            raise AttributeError(name)
        return getattr(self._state, name)


@pytest.mark.parametrize("name", ["_find_nested_approval_state", "_context"])
async def test_missing_private_method_of_the_library_raises_config_error(
    name: str, tmp_path: Path
) -> None:
    result = await Runner.run(asking(tmp_path, "report"), "Send it", run_config=CONFIG)
    renamed: Any = Renamed(result.to_state(), name)
    async with perdure.open("memory:") as store:
        session = PerdureSession("s", store)
        with pytest.raises(ConfigError, match=rf"has no RunState\.{name}, .*{SUPPORTED}"):
            await session.save_state(renamed)
        assert await session.load_state(answering(tmp_path)) is None
        assert await store.questions() == []


async def test_session_whose_private_method_was_deleted_raises_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = await Runner.run(asking(tmp_path, "report"), "Send it", run_config=CONFIG)
    state = result.to_state()
    monkeypatch.delattr(RunState, "_find_nested_approval_state")
    async with perdure.open("memory:") as store:
        with pytest.raises(ConfigError) as raised:
            await PerdureSession("s", store).save_state(state)
    assert str(raised.value) == (
        "this release of openai-agents has no RunState._find_nested_approval_state, which stored "
        "approvals need: pip install 'openai-agents>=0.24,<0.25'"
    )
