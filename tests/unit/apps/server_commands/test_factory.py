"""MODULE:FACTORY: the values that a factory can return, and rejected values."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import perdure
from perdure import Agent, Runtime, Store
from perdure.apps.cli.exits import UsageMistake
from perdure.apps.server_commands.factory import made_by
from perdure.errors import ConfigError

AGENT = Agent("helper", model="scripted:echo")


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("factory_program")

    async def later(store: Store) -> Runtime:
        return Runtime(store, agents=[AGENT])

    def one(store: Store) -> Agent:
        return AGENT

    def several(store: Store) -> list[Agent]:
        return [AGENT]

    def nothing(store: Store) -> list[Agent]:
        return []

    found: dict[str, object] = {"one": one, "several": several, "nothing": nothing, "later": later}
    found["text"] = "no function"
    for name, value in found.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "factory_program", module)
    monkeypatch.setattr(sys, "path", [*sys.path])


async def test_factory_returns_agents_or_a_runtime() -> None:
    async with perdure.open("memory:") as store:
        assert await made_by("factory_program:one", store) == [AGENT]
        assert await made_by("factory_program:several", store) == [AGENT]
        assert isinstance(await made_by("factory_program:later", store), Runtime)


async def test_unusable_factory_raises_error_with_reason() -> None:
    cases = {
        "factory_program": (UsageMistake, "is not MODULE:FACTORY"),
        "no_such_program:one": (ConfigError, "there is no module 'no_such_program'"),
        "factory_program:missing": (ConfigError, "has no function 'missing'"),
        "factory_program:text": (ConfigError, "has no function 'text'"),
        "factory_program:nothing": (ConfigError, "must return a perdure.Runtime, or agents"),
    }
    async with perdure.open("memory:") as store:
        for factory, (error, reason) in cases.items():
            with pytest.raises(error, match=reason):
                await made_by(factory, store)
