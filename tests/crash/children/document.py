"""Runs the document of the plan given as JSON in the first argument, and dies where it says."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[3]))

import perdure
from tests.fakes.mortal_documents import DocumentPlan, finished


async def main() -> None:
    """Run to the end, or to death."""
    plan = msgspec.json.decode(sys.argv[1], type=DocumentPlan)
    async with perdure.open(plan.address) as store:
        await finished(plan, store)


asyncio.run(main())
