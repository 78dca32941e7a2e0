"""Runs the plan given as JSON in the first argument, and dies where it says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[3]))

import perdure
from tests.fakes.two_tools import Plan, finished


async def main() -> None:
    """Run, and acknowledge on standard output what was committed."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    async with perdure.open(f"sqlite:///{plan.database}") as store:
        await finished(plan, store, acknowledge=sys.stdout.fileno())


asyncio.run(main())
