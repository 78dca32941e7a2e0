"""Select the conformance tests of `make check`, `make test` and `make test-all`.

One specification tests every backend and every wire format. Most failures appear on two backends,
one in memory and one on disk, and on two models, one offline and one over HTTP. `make check` runs
the tests only on the two backends and the two models. `make test` runs everything on each storage
engine: memory, SQLite, PostgreSQL and session files. An encrypted store runs the code of SQLite on
encrypted pages. The second dialect of session files runs the code of the first dialect on other
records. For both variants, `make test` runs only the tests whose result can differ (`DIFFERS`), and
`make test-all` runs the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.store.backends import BACKENDS as STORES
from tests.conformance.store.backends import ENCRYPTED
from tests.fakes.model_backends import BACKENDS as MODELS

HERE = f"{Path(__file__).parent}/"
QUICK_STORES = {"memory", "sqlite"}
COUNTERPART = "sqlite"
"""`make test` copies from this store to each other store, and from each other store to it."""
QUICK_MODELS = {"scripted", "openai-compatible"}
OTHERS = (set(STORES) - QUICK_STORES) | (set(MODELS) - QUICK_MODELS)
QUICK_MODEL_TESTS = "test_model_client.py"

_CONTENT = {"bytes", "capabilities", "copying", "erasing", "vacuum", "whole_store"}
_RECORDS = {"append", "turns"}
DIFFERS = {ENCRYPTED: _CONTENT, "jsonl-operator": _CONTENT | _RECORDS}
"""Maps a variant of an engine to the test modules in which the variant may behave differently."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make check` leaves to `make test` or to `make test-all`."""
    for item in items:
        if not str(item.path).startswith(HERE):
            continue
        if not _is_quick(item):
            item.add_marker("full_only")
        subject = item.path.stem.removeprefix("test_")
        names = _parameters(item)
        is_same = any(subject not in DIFFERS.get(each, {subject}) for each in names)
        if is_same or not _is_pair([name for name in names if name in STORES]):
            item.add_marker("all_only")


def _is_quick(item: pytest.Item) -> bool:
    if str(item.path).startswith(f"{HERE}model/") and item.path.name != QUICK_MODEL_TESTS:
        return False
    return not any(parameter in OTHERS for parameter in _parameters(item))


def _is_pair(stores: list[str]) -> bool:
    """Return whether a test of two stores uses `COUNTERPART`."""
    return len(stores) < 2 or COUNTERPART in stores


def _parameters(item: pytest.Item) -> list[str]:
    """Return the string parameters of `item`, one of which names its backend."""
    call = getattr(item, "callspec", None)
    return [each for each in call.params.values() if isinstance(each, str)] if call else []
