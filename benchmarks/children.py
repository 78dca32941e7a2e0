"""Several processes that append at once: started, let go together, and what became of it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

import msgspec

from benchmarks.child import Job, Outcome


class Together(msgspec.Struct, frozen=True):
    """What several processes did at once."""

    outcomes: list[Outcome]

    @property
    def laps_ms(self) -> list[float]:
        """How long each turn took, of all of them."""
        return [lap for outcome in self.outcomes for lap in outcome.laps_ms]

    @property
    def errors(self) -> list[str]:
        """What went wrong, in all of them."""
        return [error for outcome in self.outcomes for error in outcome.errors]

    @property
    def rate(self) -> float:
        """Turns a second, from the first one's beginning to the last one's end."""
        began = min(outcome.began_s for outcome in self.outcomes)
        ended = max(outcome.ended_s for outcome in self.outcomes)
        return len(self.laps_ms) / (ended - began)


async def started(job: Job) -> Process:
    """A child that is ready and waits."""
    command = (sys.executable, "-m", "benchmarks.child", msgspec.json.encode(job).decode())
    child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=2**26)
    assert child.stdout is not None
    assert (await child.stdout.readline()).strip() == b"ready"
    return child


async def done_together(jobs: Sequence[Job]) -> Together:
    """The outcomes of `jobs`, carried out at the same time."""
    children = [await started(job) for job in jobs]
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
    answers = await asyncio.gather(*(child.communicate() for child in children))
    return Together([msgspec.json.decode(out, type=Outcome) for out, _ in answers])
