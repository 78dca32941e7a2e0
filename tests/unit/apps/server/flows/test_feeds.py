"""Feeds: pages, and the entry of each item."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.server.flows.feeds import read_feed
from perdure.client.flows.flow import Flow
from perdure.errors import WrongArgument
from perdure.session.flows.graph import FlowNode, Graph
from perdure.session.ids import entry_place
from tests.fakes.flow_stage import FlowStage, ends, writes

ALONE = Graph("alone", (FlowNode("owner-intake", "owner"),))
START = "Node `owner-intake` started"


async def ran(stage: FlowStage, folder: Path) -> Flow:
    async with stage.flows("owner") as flows:
        flow = await flows.start(ALONE, workspace=folder, consent="partial-access")
        await flow.run()
        return flow


async def test_pages_of_a_feed_contain_all_items(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, writes(START, "a.md"), ends(START, "forward-pass-closed"))
    flow = await ran(stage, tmp_path)
    whole = await read_feed(stage.store, flow.id, "owner", None, 100)
    assert not whole.has_more
    assert [each.type for each in whole.items] == ["activation", "tool-success", "assistant"]
    for each in whole.items:
        stream, seq = entry_place(each.entry_id)
        assert (await stage.store.backend.entries(stream, after=seq - 1))[0].id == each.entry_id
    paged: dict[str, object] = {}
    cursor, has_more = None, True
    while has_more:
        page = await read_feed(stage.store, flow.id, "owner", cursor, 1)
        paged |= {each.id: each for each in page.items}
        cursor, has_more = page.cursor, page.has_more
    assert list(paged.values()) == whole.items
    assert (await read_feed(stage.store, flow.id, "owner", cursor, 1)).items == []


@pytest.mark.parametrize("cursor", ["x", '{"role":"developer"}', "[]"])
async def test_cursor_of_another_feed_is_rejected(tmp_path: Path, cursor: str) -> None:
    stage = FlowStage(tmp_path, ends(START, "forward-pass-closed"))
    flow = await ran(stage, tmp_path)
    with pytest.raises(WrongArgument):
        await read_feed(stage.store, flow.id, "owner", cursor, 10)
