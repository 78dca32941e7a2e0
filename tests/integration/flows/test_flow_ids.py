"""Ids of flows: an id that would collide with an id of a role session is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.erase import free_flow_ids
from perdure.errors import SessionExists, WrongArgument
from perdure.session.ids import StreamId
from tests.fakes.flow_stage import FlowStage, ends
from tests.integration.flows.test_deleting import LINE

AT = "Node `owner-intake` started"


async def test_flow_id_reserved_for_a_role_of_another_flow_is_rejected(tmp_path: Path) -> None:
    flows = FlowStage(tmp_path).flows("owner")
    await flows.start(LINE, workspace=tmp_path, id="f__x", record_folder="first")
    for id in ("f__x__owner", "f__x__owner__selector-1", "f__x__owner__selector-12"):
        with pytest.raises(
            WrongArgument, match=r"is reserved for the role '.*' of the flow 'f__x'"
        ):
            await flows.start(LINE, workspace=tmp_path, id=id, record_folder="other")
    assert not (tmp_path / "other").exists()
    for number, id in enumerate(("f", "g__owner", "f__x__dev", "f__x_owner")):
        await flows.start(LINE, workspace=tmp_path, id=id, record_folder=f"other-{number}")


async def test_reimport_avoids_ids_of_erased_role_sessions(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, ends(AT, "prompt-human"))
    flows, backend = stage.flows("owner"), stage.store.backend
    flow = await flows.start(LINE, workspace=tmp_path, id="f", record_folder="record")
    await flow.run()
    await flows.delete("f")
    role = StreamId("f__owner")
    with pytest.raises(SessionExists, match="erased"):
        await free_flow_ids(backend, role, [StreamId("f__owner__owner")], is_reused=True)
    assert (await backend.state(role)).info.status == "erased"
    assert set(await free_flow_ids(backend, StreamId("f"), [role], is_reused=True) or ()) == {
        "f",
        role,
    }
