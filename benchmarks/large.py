"""Claim: a message of 16 MiB, and the first call of a model, do not block other tasks.

Each content form and each provider is measured in a separate process. The CPU of a turn is compared
with the physical limit: encoding the same text as JSON, writing it and its fsync. A stall is the
CPU time of the event loop's thread between two iterations of the loop. The longest time without an
iteration is shown separately, because it includes the load of the machine. On a machine without
other load, this time equals the CPU time of all threads in the same interval.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from benchmarks.figures import Figure, Run
from benchmarks.large_child import Job, Outcome
from benchmarks.texts import FORMS

SIZE = 16 * 2**20 - 1_024
QUICK_SIZE = 2 * 2**20
MOST_CPU_S = 5.0
MOST_SIZES = 4.0
MOST_STALL_MS = 50.0
STALL = "longest stall of the event loop"
WIRES = ("openai", "openai-responses", "anthropic", "google")


async def measure(run: Run) -> list[Figure]:
    """Measure a turn of each form of content, and the first search after the turn."""
    size = QUICK_SIZE if run.is_quick else SIZE
    figures: list[Figure] = []
    for form in FORMS:
        job = Job(folder=str(run.folder), seed=run.seed, form=form, size=size)
        figures += _of_turn(f"message of {size / 2**20:.0f} MiB, {form}", await _outcome(job))
    return figures


async def measure_first_call(run: Run) -> list[Figure]:
    """Measure the first call of each provider, and of a fallback, each in a new process."""
    figures: list[Figure] = []
    for provider in WIRES:
        for kind in ("first call", "first fallback"):
            job = Job(
                str(run.folder), run.seed, provider=provider, is_fallback=kind != "first call"
            )
            figures += _of_call(f"{kind} of the provider {provider}", await _outcome(job))
    return figures


def _of_turn(claim: str, found: Outcome) -> list[Figure]:
    cpu = "CPU time of a turn (Raw: encode, write and sync the text)"
    search = "of the first search"
    return [
        Figure(claim, cpu, found.cpu_s, "s", raw=found.raw_s, limit=MOST_CPU_S),
        Figure(
            claim,
            "growth of memory, divided by the message's size",
            found.sizes,
            "x",
            limit=MOST_SIZES,
        ),
        Figure(claim, f"{STALL}, CPU time of its thread", found.held_ms, "ms", limit=MOST_STALL_MS),
        Figure(claim, f"{STALL}, CPU time of all threads", found.busy_ms, "ms"),
        Figure(claim, f"{STALL}, elapsed time", found.stall_ms, "ms"),
        Figure(claim, f"CPU time {search}", found.search_cpu_s, "s"),
        Figure(
            claim,
            f"{STALL} {search}, CPU time of its thread",
            found.search_held_ms,
            "ms",
            limit=MOST_STALL_MS,
        ),
    ]


def _of_call(claim: str, found: Outcome) -> list[Figure]:
    return [
        Figure(claim, "CPU time of the turn", found.cpu_s, "s"),
        Figure(claim, f"{STALL}, CPU time of its thread", found.held_ms, "ms", limit=MOST_STALL_MS),
        Figure(
            claim, f"{STALL}, CPU time of all threads", found.busy_ms, "ms", limit=MOST_STALL_MS
        ),
        Figure(claim, f"{STALL}, elapsed time", found.stall_ms, "ms", limit=MOST_STALL_MS),
        Figure(claim, f"{STALL} in the second turn, elapsed time", found.next_stall_ms, "ms"),
    ]


async def _outcome(job: Job) -> Outcome:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.large_child", msgspec.json.encode(job).decode()),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    told, _ = await process.communicate()
    return msgspec.json.decode(told, type=Outcome)
