"""Whole flows on a scripted model: roles write files with tools and hand them over.

The answer of a role depends on the request alone, so all processes give the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import Outside
from perdure.client.flows.flows import Flows
from perdure.client.store import Store
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.stores.in_memory.store import MemoryStore
from perdure.tools.permissions import Permissions
from tests.fakes.clock import ManualClock, SeededRandom

MODEL = "scripted:flow"
FREE = Permissions(approval="auto", allowed_commands=("pwd", "ls", "make test"))


def writes(at: str, path: str, text: str = "words", *, when: When | None = None) -> Reply:
    """Write the file `path` with a tool in the turn whose input contains `at`."""
    call = ScriptedCall("write_file", json.dumps({"path": path, "content": text}))
    return Reply(when=when or When(user_contains=at, after="user"), steps=(CallTools((call,)),))


def says(at: str, text: str, *, after: str | None = None) -> Reply:
    """Answer `text` in the turn whose input contains `at`, whatever came before in that turn."""
    when = When(user_contains=at) if after is None else When(user_contains=at, after_tool=after)
    return Reply(when=when, steps=(Say(text),))


def hands(at: str, record: str, name: str, *targets: str) -> list[Reply]:
    """Write a file and hand it over in the turn whose input contains `at`."""
    lines = [f"- {{target_node_id: {target}, artifact_path: {name}}}" for target in targets]
    block = "\n".join([f"Here is {name}.", "```handoff", *lines, "```"])
    return [writes(at, f"{record}/{name}", f"what {name} says"), says(at, block)]


def ends(at: str, type: str, **fields: str) -> Reply:
    """End the turn whose input contains `at` with a signal."""
    lines = [f"type: {type}", *(f"{name}: {value}" for name, value in fields.items())]
    return says(at, "\n".join(["Done.", "```handoff", *lines, "```"]))


class FlowStage:
    """A store in memory, and flows in `workspace` whose roles answer by `rules`."""

    def __init__(self, workspace: Path, *rules: Reply, window: int | None = None) -> None:
        self.workspace = workspace
        self.clock = ManualClock()
        random = SeededRandom(1)
        self.memory = MemoryStore(clock=self.clock, random=random)
        self.store = Store(self.memory, Outside(self.clock, random))
        scenario = Scenario(name="flow", rules=rules, context_window=window)
        self.models = ScriptedModel(scenario, clock=self.clock)

    def flows(
        self, *roles: str, owner: str = "here", offered: Sequence[str] = (), **agent: Any
    ) -> Flows:
        """Return the flows as one process sees them."""
        settings: dict[str, Any] = {
            "model": MODEL,
            "tools": ["read_file", "write_file", "run_command"],
            "permissions": FREE,
            **agent,
        }
        agents = [Agent(role, **settings) for role in roles]
        runtime = Runtime(self.store, agents, models=self.models, owner=owner)
        return Flows(runtime, offered_models=offered)
