"""Staged handoffs whose files are missing, or must not be read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.client.inbox.staged_handoff import approved_texts, require_as_staged
from perdure.engine.flows.journal import Journal
from perdure.errors import FlowRefusal
from perdure.session.flows.run import FlowState
from tests.attacks.test_handoffs import staged
from tests.integration.flows.test_scenarios import texts

KEY = "owner-intake=>build"


async def test_handoff_with_a_missing_file_is_approved_with_stored_content(
    tmp_path: Path,
) -> None:
    _, flow, file = await staged(tmp_path)
    file.unlink()
    await flow.approve()
    await flow.run()
    assert "what plan.md says" in (await texts(flow, "developer"))[0]


async def test_folder_of_an_imported_flow_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, flow, file = await staged(tmp_path)
    file.write_text("of the user")
    state = await flow.state()
    journal = Journal(stage.memory, flow.id, stage.clock)

    async def received() -> FlowState:
        return msgspec.structs.replace(state, is_place_in_force=False)

    monkeypatch.setattr(journal, "state", received)
    await require_as_staged(stage.memory, journal, stage.clock, None)
    monkeypatch.undo()
    with pytest.raises(FlowRefusal):
        await require_as_staged(stage.memory, journal, stage.clock, None)


async def test_content_of_an_approved_handoff_is_read_from_the_store(tmp_path: Path) -> None:
    stage, flow, file = await staged(tmp_path)
    state = await flow.approve()
    file.write_text("another text")
    (told,) = (await approved_texts(stage.memory, state, [KEY])).items()
    assert told[0] == "plan.md"
    assert "what plan.md says" in told[1]
    assert await approved_texts(stage.memory, state, ["build=>end"]) == {}
