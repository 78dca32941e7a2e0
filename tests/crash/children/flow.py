"""Run the flow of a plan as a separate process that dies where the plan says."""

from __future__ import annotations

import asyncio
import sys

import perdure
from tests.fakes.mortal_flows import FlowPlan, finished


def run(plan: FlowPlan) -> None:
    """Run the plan, and report each commit on standard output."""
    asyncio.run(_run(plan))


async def _run(plan: FlowPlan) -> None:
    async with perdure.open(plan.address) as store:
        await finished(plan, store, told=sys.stdout.fileno())
