"""The part of DBOS that is not public."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perdure.client.cluster.dbos_queue import listen_to
from perdure.errors import ConfigError


def test_dbos_without_list_of_queues_is_refused_with_remedy() -> None:
    with pytest.raises(ConfigError, match=r"cannot be used.*pip install 'dbos>=3\.4,<3\.5'"):
        listen_to(SimpleNamespace(), [])


def test_dbos_follows_given_list() -> None:
    queues: list[str] = []
    dbos = SimpleNamespace(_listening_queues=None)
    listen_to(dbos, queues)
    queues.append("later")
    assert dbos._listening_queues == ["later"]
