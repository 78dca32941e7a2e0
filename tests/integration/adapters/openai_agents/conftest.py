"""Loads the SDK once, before child processes are forked: loading takes 2 s in each process."""

from __future__ import annotations

from tests.fakes.forked import preload

preload("agents", "agents.testing", "perdure.adapters.openai_agents")
