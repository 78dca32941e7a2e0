"""The SDK in the process that forks the children of tests: each child would import it in 2 s."""

from __future__ import annotations

from tests.fakes.forked import preload

preload("agents", "agents.testing", "perdure.adapters.openai_agents")
