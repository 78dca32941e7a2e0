"""`python -m tests.faults [--faults N] [--seed S]`: workers on PostgreSQL under random faults.

Workers are processes with Python tools, each in its own network namespace if the system allows it
(root and `ip`). Faults kill, stop and continue workers or disconnect them from the server, restart
the server, or kill the server so that its streaming replica replaces it. The seed determines the
faults and their order. Ends with exit code 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import signal
import sys
import time
from pathlib import Path

from tests.faults.plans import Fault
from tests.faults.storm import Outcome, percentile, storm

TAKEOVER_S = 2.0


def main() -> int:
    """Run the faults that the arguments describe."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--logs", type=Path, help="copy the logs of the workers to this folder")
    asked = parser.parse_args()

    began = time.monotonic()
    faulthandler.register(signal.SIGUSR1)

    def tell(number: int, fault: Fault) -> None:
        at = f"{time.strftime('%H:%M:%S', time.gmtime())}, {time.monotonic() - began:.0f} s"
        sys.stderr.write(f"{at}: {number + 1}/{asked.faults} {fault.kind} {fault.machine}\n")

    outcome = asyncio.run(storm(asked.seed, asked.faults, asked.workers, tell, asked.logs))
    lines = report(outcome)
    sys.stdout.write("\n".join(lines) + "\n")
    is_quick = percentile(outcome.takeovers_s, 0.99) < TAKEOVER_S
    return 0 if outcome.findings.is_sound and is_quick else 1


def report(outcome: Outcome) -> list[str]:
    """Return the figures of a run as lines."""
    found = outcome.findings
    declared, false = (outcome.counts.get(name, 0) for name in ("takeovers", "false_takeovers"))
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.faults.items()))
    where = "a network namespace each" if outcome.is_apart else "one network: nobody was parted"
    return [
        f"faults                     {outcome.faults.total()} ({kinds}); {where}",
        f"turns taken over           {len(outcome.takeovers_s)}",
        f"takeover p50 / p99         {_both(outcome.takeovers_s)} (goal: p99 < {TAKEOVER_S} s)",
        f"pause of the server's p99  {_both(outcome.pauses_s)}",
        f"acknowledged requests      {found.acknowledged}",
        f"turns, effects of tools    {found.turns}, {found.effects}",
        f"acknowledged work lost     {len(found.lost)}",
        f"effects beyond policy      {len(found.beyond_policy)}",
        f"invalid contexts           {len(found.invalid_contexts)}",
        f"broken hashes              {len(found.broken)}",
        f"given up after 3 deaths    {found.given_up}",
        f"workers declared dead      {declared}, {false} of them wrongly",
        *outcome.slow,
        *found.lost,
        *found.beyond_policy,
        *found.invalid_contexts,
        *found.broken,
    ]


def _both(values: list[float]) -> str:
    return f"{percentile(values, 0.5):.2f} / {percentile(values, 0.99):.2f} s"


if __name__ == "__main__":
    sys.exit(main())
