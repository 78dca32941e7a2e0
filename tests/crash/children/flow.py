"""Runs the flow of the plan given as JSON in the first argument, and dies where it says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[3]))

import perdure
from tests.fakes.mortal_flows import FlowPlan, finished


async def main() -> None:
    """Run, and tell each commit on standard output."""
    plan = msgspec.json.decode(sys.argv[1], type=FlowPlan)
    async with perdure.open(plan.address) as store:
        await finished(plan, store, told=sys.stdout.fileno())


asyncio.run(main())
