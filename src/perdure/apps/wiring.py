"""The composition root: provides the models and tools for the agents of the command line.

Apart from ``store_access``, which opens stores, only this module chooses concrete adapters; all
lower layers receive these adapters as arguments. The package of a provider is loaded when a model
of the provider is first called.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from perdure.client.agents.agent import Agent
from perdure.client.agents.providers import default_models, provider_states
from perdure.client.clock import SystemClock
from perdure.engine.turns.config import MemoryConfig
from perdure.errors import ConfigError
from perdure.models.catalogue import ECHO
from perdure.models.router import ModelRouter
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.permissions import Permissions
from perdure.tools.spec import ToolSpec

AGENT = "assistant"
_SCENARIO_YAML = "perdure.models.scenario_yaml"

INSTRUCTIONS = """You are a careful assistant in the user's terminal.
You can read files, list directories and search in the working directory. What your other tools \
change, run or send, the person may have to approve first; when they refuse, do not try another \
way. Say what you looked at and what you changed, and say so when you do not know."""

READING: tuple[str, ...] = ("read_file", "list_directory", "search_files", "git_status")
"""Read-only tools of every chat; they read only files that the session's scope allows."""

CHANGING: tuple[str, ...] = ("write_file", "edit_file", "git_commit", "read_media")
"""More tools of every chat; all calls except those of the last tool need approval."""


REMEMBERED = MemoryConfig(episodic_top_k=0)
"""Lets a chat recall facts that a person stored, but no texts of other sessions."""


class ScenarioNotFound(ConfigError):
    """The file for a scenario does not exist."""

    code = "scenario_not_found"


def models(scenario: Scenario | None = None) -> ModelRouter:
    """Return the models whose keys are in the environment, or only the model of `scenario`."""
    clock = SystemClock()
    if scenario is not None:
        return ModelRouter({"scripted": ScriptedModel(scenario, clock=clock)})
    return default_models(os.environ, clock)


def require_providers(names: Iterable[str | None]) -> None:
    """Raises: ConfigError if a name in `names` has an unknown provider; keys are not checked."""
    router = models()
    for name in names:
        if name is not None:
            router.provider_of(name)


def scenario_in(file: Path) -> Scenario:
    """Read the scenario in a YAML file. The YAML library is loaded only by this function.

    Raises: ScenarioNotFound if the file does not exist.
    Raises: ConfigError if the file cannot be read or has errors (each is reported with its line).
    """
    if not file.exists():
        raise ScenarioNotFound(f"there is no scenario {file}: name its file after --scenario")
    return cast("Scenario", importlib.import_module(_SCENARIO_YAML).load_scenario(file))


def chat_agent(
    model: str | None = None,
    tools: Iterable[ToolSpec] = (),
    permissions: Permissions | None = None,
    **settings: Any,
) -> Agent:
    """Return the agent of ``perdure chat``, with `model`, the built-in tools and `tools`.

    Without a `model`, the agent can only resume sessions that already have a model. Tools that
    cannot be used with `permissions` are not offered. `settings` are further fields of `Agent`.
    """
    allowed = permissions or Permissions()
    return Agent(
        AGENT,
        model=model or ECHO,
        instructions=INSTRUCTIONS,
        tools=(*builtin_tools(allowed), *tools),
        permissions=allowed,
        memory=REMEMBERED,
        **settings,
    )


def model_choices(environment: Mapping[str, str]) -> str:
    """Describe the models that can be chosen; models whose provider is set up come first."""
    states = [state for state in provider_states(environment) if state.name != "scripted"]
    ready = [state.name for state in states if state.status == "configured"]
    others = [state.name for state in states if state.name not in ready]
    named = [*(f"{name}:NAME (configured)" for name in ready), *(f"{name}:NAME" for name in others)]
    return f"{', '.join(named)}, or {ECHO} (offline, no language model)"


def builtin_tools(permissions: Permissions) -> tuple[ToolSpec, ...]:
    """Return the built-in tools that can be used with `permissions`."""
    names = [*READING, *CHANGING]
    if permissions.allowed_commands or permissions.allowed_command_globs:
        names.append("run_command")
    if permissions.allowed_domains:
        names.append("http_request")
    if permissions.search_endpoint is not None:
        names.append("web_search")
    return tuple(BUILTIN[name] for name in names)
