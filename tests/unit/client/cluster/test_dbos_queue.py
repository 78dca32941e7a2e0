"""Private functions of DBOS that perdure needs, and launches of DBOS that fail."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
import sqlalchemy

from perdure.client.cluster.dbos_queue import (
    SERVER_ERRORS,
    DbosQueue,
    keep_queues,
    listen_to,
    order_claims,
)
from perdure.errors import ConfigError
from perdure.stores.cluster.protocol import Work


def test_dbos_without_a_queue_list_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"cannot be used.*pip install 'dbos>=3\.4,<3\.5'"):
        listen_to(SimpleNamespace(), [])


def test_dbos_polls_exactly_the_queues_in_the_given_list() -> None:
    queues: list[str] = []
    dbos = SimpleNamespace(_listening_queues=None)
    listen_to(dbos, queues)
    queues.append("later")
    assert dbos._listening_queues == ["later"]


def test_dbos_without_the_function_get_queue_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no get_queue.*pip install 'dbos>=3\.4,<3\.5'"):
        keep_queues(SimpleNamespace(), {})


def test_dbos_version_without_the_queue_function_is_refused() -> None:
    dbos = SimpleNamespace(_sys_db=SimpleNamespace())
    with pytest.raises(ConfigError, match=r"no start_queued_.*pip install 'dbos>=3\.4,<3\.5'"):
        order_claims(dbos, sqlalchemy.create_engine("postgresql+psycopg://"), lambda _: None)


async def test_failed_launch_leaves_dbos_log_level_at_error() -> None:
    async def perform(work: Work) -> str:
        raise AssertionError(work)

    away = "postgresql://nobody@127.0.0.1:9/nothing"
    queue = DbosQueue(away, "w", perform, 1, direct=away)
    try:
        with pytest.raises(SERVER_ERRORS):
            await asyncio.to_thread(queue.launch)
    finally:
        queue.close()
    assert logging.getLogger("dbos").level == logging.ERROR
