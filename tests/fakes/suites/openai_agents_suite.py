"""A plugin that runs the published tests of the OpenAI Agents SDK on `PerdureSession`.

    python -m pytest -p openai_agents_suite tests/memory/test_session.py

Run this command in the SDK's folder. PYTHONPATH must contain the folder of this plugin, because the
package `tests` is then the SDK's and not perdure's. $PERDURE_SUITE_STORE is the address of a
PostgreSQL store. Without $PERDURE_SUITE_STORE, each file of `SQLiteSession` gets an SQLite store
next to it.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

import pytest
from agents.memory import SessionSettings

import perdure
from perdure.adapters.openai_agents import PerdureSession

INSIDE: dict[str, str] = {
    # test of what is inside of `SQLiteSession`: what it looks at
    "test_await_mutation_cancellation_hides": "a function of the SDK, without a session",
    "test_sqlite_session_close_closes_worker_thread_connections": "its connections",
    "test_sqlite_session_reaps_connections_from_exited_worker_threads": "its connections",
    "test_sqlite_session_closes_retired_connections_before": "its connections",
    "test_sqlite_session_keeps_connections_of_live_worker_threads": "its connections",
    "test_sqlite_session_closed_rejects_empty_add_items": "its close",
    "test_sqlite_session_pop_item_skips_corrupt_most_recent": "rows written with sqlite3",
    "test_sqlite_session_pop_item_returns_none_after_dropping": "rows written with sqlite3",
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": "rows written with sqlite3",
    "test_sqlite_session_get_items_session_settings_limit_skips": "rows written with sqlite3",
    "test_sqlite_session_file_lock_is_shared_across_instances": "its locks",
    "test_sqlite_session_failed_add_items_releases_write_lock": "its connections",
    "test_sqlite_session_failed_clear_session_rolls_back": "its connections",
    "test_sqlite_session_failed_pop_item_releases_write_lock": "its connections",
    "test_sqlite_session_rollback_failure_evicts_connection": "its connections",
    "test_sqlite_session_close_retries_quarantined_connection": "its connections",
    "test_sqlite_session_post_commit_cancellation": "its connections",
    "test_automatic_compaction_rollback_budget": "a private method for compaction",
    "test_settled_pop_failure_invalidates_response_chain": "its connections",
    "test_settled_clear_failure_invalidates_response_chain": "its connections",
    "test_handoff_resume_after_cancelled_compaction_commits": "a private method for compaction",
}

_stores: dict[str, perdure.blocking.Store] = {}
_numbers = count()


def _store(path: str) -> perdure.blocking.Store:
    """Return the store in place of the file `path`."""
    key = f"memory {next(_numbers)}" if path == ":memory:" else str(Path(path).resolve())
    if key not in _stores:
        address = os.environ.get("PERDURE_SUITE_STORE")
        if address is not None:
            name = hashlib.sha256(key.encode()).hexdigest()[:16]
            _stores[key] = perdure.blocking.open(address, namespace=f"suite-{name}")
        else:
            file = "memory:" if path == ":memory:" else f"sqlite:///{key}.perdure"
            _stores[key] = perdure.blocking.open(file)
    return _stores[key]


class Substitute(PerdureSession):
    """A perdure session with the constructor of `SQLiteSession`."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        session_settings: Any = None,
    ) -> None:
        self.db_path = db_path
        settings = SessionSettings() if session_settings is None else session_settings
        super().__init__(session_id, _store(str(db_path)), session_settings=settings)

    def close(self) -> None:
        """Do nothing, because only a store can be closed, not a session."""


for name in ("agents", "agents.memory"):
    vars(sys.modules[name])["SQLiteSession"] = Substitute


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the internals of `SQLiteSession`, and the tests without a session."""
    left = [each for each in items if each.name.startswith(tuple(INSIDE)) or not _is_used(each)]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _is_used(item: pytest.Item) -> bool:
    """Return whether a test uses `SQLiteSession`, directly or through other code of its module.

    The tests without `SQLiteSession` run no code of perdure: for example, six in seven of the SDK's
    tests of runs.
    """
    assert isinstance(item, pytest.Function)
    module: dict[str, object] = vars(item.module)
    seen: set[str] = set()
    function = cast("FunctionType", item.obj)
    named = {*_names(function.__code__), *item.fixturenames}
    while named:
        seen |= named
        used = [_names_of(module[name]) for name in named if name in module]
        named = set[str]().union(*used) - seen
    return "SQLiteSession" in seen


def _names_of(found: Any) -> set[str]:
    """Return the names in a function, a fixture, or the methods and bases of a class."""
    found = getattr(found, "_get_wrapped_function", lambda: found)()  # of a fixture
    if isinstance(found, FunctionType):
        return _names(cast("FunctionType", inspect.unwrap(found)).__code__)
    if not inspect.isclass(found):
        return set()
    if issubclass(found, Substitute):
        return {"SQLiteSession"}
    inner = [_names_of(each) for each in (*vars(found).values(), *found.__bases__)]
    return set[str]().union(*inner)


def _names(code: CodeType) -> set[str]:
    """Return the names in `code`, and in the functions that it defines."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)


@pytest.fixture(autouse=True)
def _close_stores() -> Iterator[None]:
    """Close the stores of a test."""
    yield
    while _stores:
        _stores.popitem()[1].close()
