"""The composition root: the models and tools that an agent of the command line is made of.

Besides ``opening``, which knows the stores, this is the only place that picks concrete adapters;
everything below takes them as arguments. A provider's package is loaded at its first call.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from perdure.client.agents.agent import DEFAULT_MODEL, Agent
from perdure.client.agents.providers import default_models
from perdure.client.clock import SystemClock
from perdure.models.routing import ModelRouter
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.tools.builtin.files import list_directory, read_file
from perdure.tools.builtin.search import search_files
from perdure.tools.spec import ToolSpec

AGENT = "assistant"
_SCENARIO_YAML = "perdure.models.scenario_yaml"

INSTRUCTIONS = """You are a careful assistant in the user's terminal.
You can read files, list directories and search in the working directory; you cannot change \
anything. Say what you looked at, and say so when you do not know."""

BUILTIN_TOOLS: tuple[ToolSpec, ...] = (read_file, list_directory, search_files)
"""Tools every chat has. They only read, and only below the session's working directory."""


def models(scenario: Scenario | None = None) -> ModelRouter:
    """The models there are: those the environment gives access to, or only `scenario`."""
    clock = SystemClock()
    if scenario is not None:
        return ModelRouter({"scripted": ScriptedModel(scenario, clock=clock)})
    return default_models(os.environ, clock)


def scenario_in(file: Path) -> Scenario:
    """The scenario in a YAML file; only those who name one load a YAML library.

    Raises: ConfigError when it cannot be read, or with every fault and its line.
    """
    return cast("Scenario", importlib.import_module(_SCENARIO_YAML).load_scenario(file))


def chat_agent(model: str | None = None, tools: Iterable[ToolSpec] = ()) -> Agent:
    """The agent of ``perdure chat``: `model` or the offline one, the built-in tools and `tools`."""
    return Agent(
        AGENT,
        model=model or DEFAULT_MODEL,
        instructions=INSTRUCTIONS,
        tools=(*BUILTIN_TOOLS, *tools),
    )
