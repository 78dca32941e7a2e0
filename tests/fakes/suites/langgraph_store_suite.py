"""A plugin that runs LangGraph's published tests of stores on a perdure store.

    python -m pytest -p langgraph_store_suite tests/test_store.py

Run this command in the folder of a source archive of LangGraph. PYTHONPATH must contain the folder
of this plugin. $PERDURE_SUITE_STORE is the address of a PostgreSQL database or of an SQLite file.
With an SQLite file, each store is a separate file next to the named file.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

import perdure
from perdure.adapters.langgraph import PerdureStore

INSIDE: dict[str, str] = {
    # test of what is inside of LangGraph's own stores: what it looks at
    "test_nonnull_migrations": "its migrations",
    "test_escape_glob_literal": "its SQL",
    "test_namespace_match_pattern": "its SQL",
    "test_list_namespaces_prefix_uses_indexable_condition": "its SQL",
    "test_sql_injection_vulnerability": "its SQL: here a filter has any key",
    "test_vector_store_initialization": "its tables",
    "test_no_running_loop": "its loop: here the sync calls work on any",
}

_stores: list[perdure.blocking.Store] = []
_numbers = count()


class Substitute(PerdureStore):
    """A perdure store with the constructors of LangGraph's own stores."""

    def __init__(self, *_: object, index: Any = None, **__: object) -> None:
        address, number = os.environ["PERDURE_SUITE_STORE"], next(_numbers)
        if address.startswith("sqlite:"):
            opened = perdure.blocking.open(f"{address}.{number}", durability="normal")
        else:
            opened = perdure.blocking.open(address, namespace=f"suite-{os.getpid()}-{number}")
        _stores.append(opened)
        config = dict(index or {})
        if "text_fields" in config:  # as the SQLite store names them
            config["fields"] = config.pop("text_fields")
        super().__init__(opened, index=config or None)  # pyright: ignore[reportArgumentType] - as given

    def setup(self) -> None:
        """Do nothing: a store of perdure creates its tables itself."""


class SyncSubstitute(Substitute):
    """A perdure store in place of LangGraph's `SqliteStore`."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, *_: object, index: Any = None, **__: object) -> Generator[Any]:
        """Open a store."""
        yield cls(index=index)


class AsyncSubstitute(Substitute):
    """A perdure store in place of LangGraph's `AsyncSqliteStore`."""

    async def setup(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as theirs
        """Do nothing."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls, *_: object, index: Any = None, **__: object
    ) -> AsyncGenerator[Any]:
        """Open a store."""
        yield cls(index=index)


REPLACED = {
    "langgraph.store.memory": {"InMemoryStore": Substitute},
    "langgraph.store.sqlite": {"SqliteStore": SyncSubstitute},
    "langgraph.store.sqlite.aio": {"AsyncSqliteStore": AsyncSubstitute},
}
for module, names in REPLACED.items():
    importlib.import_module(module)
    vars(sys.modules[module]).update(names)
sys.modules["langgraph.store.sqlite"].AsyncSqliteStore = AsyncSubstitute  # pyright: ignore[reportAttributeAccessIssue] - exported there too


if "pytest_mock" not in sys.modules:  # which has the type of the fixture
    sys.modules["pytest_mock"] = ModuleType("pytest_mock")
    vars(sys.modules["pytest_mock"])["MockerFixture"] = object


class Mocker:
    """The two functions of pytest-mock that the tests use."""

    def spy(self, owner: Any, name: str) -> Any:
        """Count the calls of a function without replacing the function."""
        return mock.patch.object(
            owner, name, autospec=True, side_effect=getattr(owner, name)
        ).start()

    def stub(self) -> Any:
        """Return a function that only counts its calls."""
        return mock.MagicMock()


@pytest.fixture
def mocker() -> Iterator[Mocker]:
    """Replaces the fixture of pytest-mock."""
    yield Mocker()
    mock.patch.stopall()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of internals of LangGraph's stores, and tests that would run twice.

    A case on a file uses the same perdure store as the case in memory.
    """
    left = [each for each in items if each.name.startswith(tuple(INSIDE)) or "[file" in each.name]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture(autouse=True)
def _close_stores() -> Iterator[None]:
    """Close the stores of a test."""
    yield
    while _stores:
        _stores.pop().close()
