"""Which of the conformance tests every change waits for (`make check`), and which only CI.

One specification is held against every backend and every wire format. Most of what can break in it
shows on one backend in memory and one on disk, with one model offline and one over HTTP; the others
take minutes, and run in `make test`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.store.backends import BACKENDS as STORES
from tests.fakes.model_backends import BACKENDS as MODELS

HERE = Path(__file__).parent
QUICK_STORES = {"memory", "sqlite"}
QUICK_MODELS = {"scripted", "openai-compatible"}
OTHERS = (set(STORES) - QUICK_STORES) | (set(MODELS) - QUICK_MODELS)
QUICK_MODEL_TESTS = "test_model_client.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make check` leaves to `make test`."""
    for item in items:
        if item.path.is_relative_to(HERE) and not _is_quick(item):
            item.add_marker("full_only")


def _is_quick(item: pytest.Item) -> bool:
    if item.path.is_relative_to(HERE / "model") and item.path.name != QUICK_MODEL_TESTS:
        return False
    # A test with parameters ends in their names: [sqlite-encrypted], [full-postgres].
    parameters = item.name.partition("[")[2].rstrip("]")
    return not any(other in parameters for other in OTHERS)
