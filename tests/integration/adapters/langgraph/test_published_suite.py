"""LangGraph's published tests of checkpoint savers pass on `PerdureSaver`, none skipped."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import (  # pyright: ignore[reportMissingTypeStubs] - it has none
    checkpointer_test,
    validate,
)
from langgraph.checkpoint.conformance.capabilities import (  # pyright: ignore[reportMissingTypeStubs] - it has none
    Capability,
)

import perdure
from perdure.adapters.langgraph import PerdureSaver


@pytest.mark.parametrize(
    "store_address", ["sqlite", pytest.param("postgres", marks=pytest.mark.all_only)], indirect=True
)
async def test_published_tests_of_all_capabilities_pass(store_address: str) -> None:
    @checkpointer_test(name="perdure")
    async def saver() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
        async with perdure.open(store_address) as store:
            yield PerdureSaver(store)

    report = await validate(saver)
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert report.results.keys() == {capability.value for capability in Capability}
    assert all(result.passed for result in report.results.values())
    assert sum(result.tests_passed for result in report.results.values()) == 81
