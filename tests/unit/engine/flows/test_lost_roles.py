"""Roles whose session was erased are reported."""

from __future__ import annotations

import msgspec
import pytest

import perdure
from perdure.engine.flows.lost_roles import lost_roles, require_there
from perdure.errors import ConfigError
from perdure.session.ids import StreamId
from tests.fakes.flow_log import FlowLog, graph


async def test_role_is_reported_as_lost_after_its_session_is_erased() -> None:
    sessions = {"owner": StreamId("f__owner"), "developer": StreamId("f__developer")}
    log = FlowLog(graph("o>z", z="owner"))
    state = msgspec.structs.replace(log.state, sessions=sessions)
    async with perdure.open("memory:") as store:
        for session in ("f__owner", "gone"):
            await store.create(id=session)
        assert list(await lost_roles(store.backend, state)) == ["developer"]
        await store.erase("f__owner")
        lost = await lost_roles(store.backend, state)
        assert "f__owner was erased, so it cannot continue" in lost["owner"]
        assert "f__developer is not in the store any more" in lost["developer"]
        await require_there(store.backend, StreamId("gone"))
        with pytest.raises(ConfigError, match="f__owner was erased"):
            await require_there(store.backend, sessions["owner"])
