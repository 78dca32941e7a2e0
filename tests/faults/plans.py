"""Faults drawn from a seed: the same seed gives the same faults in the same order."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

FaultKind = Literal["kill", "stop", "partition", "restart", "failover"]

WEIGHTS: dict[FaultKind, int] = {
    "kill": 9,
    "stop": 9,
    "partition": 9,
    "restart": 2,
    "failover": 1,
}
OF_SERVER = frozenset[FaultKind]({"restart", "failover"})


class Fault(msgspec.Struct, frozen=True):
    """One fault. `machine` is the machine of the worker, or -1 for a fault of the server.

    Units: seconds. The fault happens after `pause_s`. A stopped or disconnected worker continues
    after `hold_s`."""

    kind: FaultKind
    machine: int
    pause_s: float
    hold_s: float


def drawn(seed: int, count: int, machines: int, *, can_part: bool = True) -> list[Fault]:
    """Return `count` faults. With the same seed, a longer plan begins with the shorter plan."""
    chance = random.Random(seed)
    kinds: list[FaultKind] = [kind for kind in WEIGHTS if can_part or kind != "partition"]
    weights = [WEIGHTS[kind] for kind in kinds]
    return [
        Fault(
            chance.choices(kinds, weights)[0],
            chance.randrange(machines),
            chance.uniform(0.2, 0.8),
            chance.uniform(1.7, 3.5),
        )
        for _ in range(count)
    ]
