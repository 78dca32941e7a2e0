"""Run the document of a plan as a separate process that dies where the plan says."""

from __future__ import annotations

import asyncio

import perdure
from tests.fakes.mortal_documents import DocumentPlan, finished


def run(plan: DocumentPlan) -> None:
    """Run the plan to its end, or until this process dies."""
    asyncio.run(_run(plan))


async def _run(plan: DocumentPlan) -> None:
    async with perdure.open(plan.address) as store:
        await finished(plan, store)
