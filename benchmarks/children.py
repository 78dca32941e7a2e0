"""Several processes that append concurrently: their start, and their outcomes."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

import msgspec

from benchmarks.child import Job, Outcome


class Together(msgspec.Struct, frozen=True):
    """The outcomes of several concurrent processes."""

    outcomes: list[Outcome]

    @property
    def laps_ms(self) -> list[float]:
        """The duration of each turn of all processes."""
        return [lap for outcome in self.outcomes for lap in outcome.laps_ms]

    @property
    def errors(self) -> list[str]:
        """The errors of all processes."""
        return [error for outcome in self.outcomes for error in outcome.errors]

    @property
    def rate(self) -> float:
        """Turns per second, from the start of the first process to the end of the last."""
        began = min(outcome.began_s for outcome in self.outcomes)
        ended = max(outcome.ended_s for outcome in self.outcomes)
        return len(self.laps_ms) / (ended - began)


async def started(job: Job) -> Process:
    """Start a child, and return it when it is ready."""
    command = (sys.executable, "-m", "benchmarks.child", msgspec.json.encode(job).decode())
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=2**26)
    assert child.stdout is not None
    assert (await child.stdout.readline()).strip() == b"ready"
    return child


async def done_together(jobs: Sequence[Job]) -> Together:
    """Run `jobs` concurrently, and return their outcomes."""
    children = [await started(job) for job in jobs]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
    answers = await asyncio.gather(*(child.communicate() for child in children))
    return Together([msgspec.json.decode(out, type=Outcome) for out, _ in answers])
