"""Export of a flow as an A-Society folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perdure.engine.flows.runner import FlowRunner
from perdure.interop.a_society.exports import export_flow
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph
from tests.fakes.scripted_roles import ScriptedRoles, begun, hand, signal

LINE = graph("owner-intake>build", "build>end", **{"owner-intake": "owner", "end": "owner"})


async def test_flow_export_contains_state_roles_and_record_files(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    script = {
        "owner": [hand(tmp_path, "build", name="plan.md"), signal("forward-pass-closed")],
        "build": ["Nothing.", hand(tmp_path, "end", name="done.md")],
    }
    ground = await begun(store, clock, LINE, tmp_path)
    await FlowRunner(ground, ScriptedRoles(store, clock, script), clock, store.changes).run()
    files = (await export_flow(store, FLOW)).files
    assert sorted(files) == [
        "flow.json",
        "record/done.md",
        "record/plan.md",
        *(f"roles/{role}/{name}.json" for role in ("build", "owner") for name in NAMES),
    ]
    run = msgspec.json.decode(files["flow.json"])
    assert (run["stateVersion"], run["status"]) == ("11", "awaiting_improvement_choice")
    assert not {"recordName", "recordSummary"} & run.keys()
    assert files["flow.json"].startswith(b'{\n  "flowId": ')
    feed = msgspec.json.decode(files["roles/build/feed.json"])
    assert [(item["id"], item["type"]) for item in feed] == [
        ("build_1", "activation"),
        ("build_2", "assistant"),
        ("build_3", "repair"),
        ("build_4", "assistant"),
        ("build_5", "handoff"),
    ]
    session = msgspec.json.decode(files["roles/owner/transcript.json"])
    assert session["logicalSessionId"] == f"{FLOW}__owner"
    assert [said["role"] for said in session["transcriptHistory"]] == ["user", "assistant"] * 2


NAMES = ("feed", "transcript")
