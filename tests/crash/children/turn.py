"""Run a plan as a separate process that dies where the plan says."""

from __future__ import annotations

import asyncio
import sys

import perdure
from tests.fakes.two_tools import Plan, finished


def run(plan: Plan) -> None:
    """Run the plan, and report each commit on standard output."""
    asyncio.run(_run(plan))


async def _run(plan: Plan) -> None:
    async with perdure.open(f"sqlite:///{plan.database}") as store:
        await finished(plan, store, acknowledge=sys.stdout.fileno())
