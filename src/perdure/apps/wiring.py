"""The composition root: the models and tools that an agent of the command line is made of.

Besides ``opening``, which knows the stores, this is the only place that picks concrete adapters;
everything below takes them as arguments. A provider's package is loaded at its first call.
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
"""Tools every chat has. They only read, and only where the session's scope allows."""

CHANGING: tuple[str, ...] = ("write_file", "edit_file", "git_commit", "read_media")
"""Tools every chat has, too; all but the last are approved first."""


def models(scenario: Scenario | None = None) -> ModelRouter:
    """The models there are: those the environment gives access to, or only `scenario`."""
    clock = SystemClock()
    if scenario is not None:
        return ModelRouter({"scripted": ScriptedModel(scenario, clock=clock)})
    return default_models(os.environ, clock)


def require_providers(names: Iterable[str | None]) -> None:
    """Raises: ConfigError for a model of an unknown provider; its key is not needed."""
    router = models()
    for name in names:
        if name is not None:
            router.provider_of(name)


def scenario_in(file: Path) -> Scenario:
    """The scenario in a YAML file; only those who name one load a YAML library.

    Raises: ConfigError when it cannot be read, or with every fault and its line.
    """
    return cast("Scenario", importlib.import_module(_SCENARIO_YAML).load_scenario(file))


def chat_agent(
    model: str | None = None,
    tools: Iterable[ToolSpec] = (),
    permissions: Permissions | None = None,
    **settings: Any,
) -> Agent:
    """The agent of ``perdure chat``: its model, the built-in tools and `tools`.

    Without a `model` it may only take part in sessions that have one. Tools that `permissions`
    leave nothing to do are not offered. `settings` are others of an `Agent`'s.
    """
    allowed = permissions or Permissions()
    return Agent(
        AGENT,
        model=model or ECHO,
        instructions=INSTRUCTIONS,
        tools=(*builtin_tools(allowed), *tools),
        permissions=allowed,
        **settings,
    )


def model_choices(environment: Mapping[str, str]) -> str:
    """The models a person can choose, those that are set up first, in words."""
    states = [state for state in provider_states(environment) if state.name != "scripted"]
    ready = [state.name for state in states if state.status == "configured"]
    others = [state.name for state in states if state.name not in ready]
    named = [*(f"{name}:NAME (configured)" for name in ready), *(f"{name}:NAME" for name in others)]
    return f"{', '.join(named)}, or {ECHO} (offline, no language model)"


def builtin_tools(permissions: Permissions) -> tuple[ToolSpec, ...]:
    """The built-in tools that have something to do under `permissions`."""
    names = [*READING, *CHANGING]
    if permissions.allowed_commands or permissions.allowed_command_globs:
        names.append("run_command")
    if permissions.allowed_domains:
        names.append("http_request")
    if permissions.search_endpoint is not None:
        names.append("web_search")
    return tuple(BUILTIN[name] for name in names)
