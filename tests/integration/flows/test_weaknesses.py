"""The weaknesses of the earlier system, numbered as in the specification, are absent here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.workspace import Workspace
from perdure.client.flows.flow import Flow
from perdure.engine.summaries import compact
from perdure.errors import FlowRefusal, LeaseHeld, TurnOpen
from perdure.models.scenario import CallTools, Hang, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.session.codec import body_of
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.kinds import Compaction
from perdure.session.messages import ToolResultPart, Usage
from perdure.stores.protocol import Commit, CommitResult
from tests.fakes.chats import until
from tests.fakes.flow_stage import FlowStage, ends, writes

ALONE = Graph("alone", (FlowNode("owner-intake", "owner"),))
LINE = Graph(
    "a change",
    (FlowNode("owner-intake", "owner"), FlowNode("build", "developer"), FlowNode("end", "owner")),
    (FlowEdge("owner-intake", "build"), FlowEdge("build", "end")),
)
INTAKE = "Node `owner-intake` started"
CLOSED = "forward-pass-closed"
LOOKING_BACK = "findings/owner-findings.md"


async def begun(stage: FlowStage, graph: Graph = ALONE, consent: str = "full-access") -> Flow:
    return await stage.flows("owner", "developer").start(
        graph,
        workspace=stage.workspace,
        record_folder="record",
        id="f",
        consent="full-access" if consent == "full-access" else "no-access",
    )


def restarted(stage: FlowStage, *rules: Reply) -> None:
    """Start the next process, whose model answers by `rules`."""
    stage.models = ScriptedModel(Scenario(name="flow", rules=rules), clock=stage.clock)


async def killed(stage: FlowStage, flow: Flow, kind: str) -> None:
    """Run `flow` until its owner's log contains `kind`, then let the process die."""
    running = asyncio.ensure_future(flow.run())

    async def is_there() -> bool:
        known = (await flow.state()).sessions
        return "owner" in known and bool(await stage.memory.notes(known["owner"], (kind,)))

    await until(is_there)
    running.cancel()
    await asyncio.wait((running,))


async def asking(stage: FlowStage) -> str:
    """Wait for a question and return its id."""

    async def is_asked() -> bool:
        return bool(await stage.store.questions())

    await until(is_asked)
    return (await stage.store.questions())[0].id


async def test_turn_begins_and_ends_in_the_commits_that_begin_and_end_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Weakness 4 of the specification.
    stage = FlowStage(tmp_path, ends(INTAKE, CLOSED))
    flow = await begun(stage)
    together: list[set[str]] = []
    commit_as_it_is = stage.memory.commit

    async def commit(commit: Commit) -> CommitResult:
        together.append({entry.kind for write in commit.writes for entry in write.entries})
        return await commit_as_it_is(commit)

    monkeypatch.setattr(stage.memory, "commit", commit)
    await flow.run()
    (claimed,) = [kinds for kinds in together if "node_claimed" in kinds]
    (closed,) = [kinds for kinds in together if "forward_pass_closed" in kinds]
    assert "turn_started" in claimed
    assert "turn_finished" in closed


async def test_node_killed_after_a_tool_call_is_continued(tmp_path: Path) -> None:
    # Weakness 5 of the specification.
    hanging = Reply(when=When(after_tool="write_file"), steps=(Hang(),))
    stage = FlowStage(tmp_path, writes(INTAKE, "record/a.md"), hanging)
    flow = await begun(stage)
    await killed(stage, flow, "tool_finished")
    restarted(stage, ends("", CLOSED))
    run = await (await stage.flows("owner", "developer").open("f")).run()
    assert (run.status, run.awaiting_human_nodes) == ("awaiting_improvement_choice", {})


async def test_review_killed_after_a_tool_call_is_continued(tmp_path: Path) -> None:
    # Weakness 5 of the specification.
    stage = FlowStage(tmp_path, ends(INTAKE, CLOSED))
    flow = await begun(stage)
    await flow.run()
    await flow.choose_improvement("parallel")
    hanging = Reply(when=When(after_tool="write_file"), steps=(Hang(),))
    restarted(stage, writes(LOOKING_BACK, f"record/{LOOKING_BACK}"), hanging)
    again = await stage.flows("owner", "developer").open("f")
    await killed(stage, again, "tool_finished")
    restarted(stage, ends("", "meta-analysis-complete", findings_path=LOOKING_BACK))
    run = await (await stage.flows("owner", "developer").open("f")).run()
    assert run.status == "awaiting_feedback_consent"


async def test_turn_with_a_denied_call_ends_with_a_result_for_every_call(tmp_path: Path) -> None:
    # Weakness 6 of the specification.
    calls = tuple(
        ScriptedCall("write_file", f'{{"path": "record/{name}", "content": "x"}}')
        for name in ("a.md", "b.md")
    )
    both = Reply(when=When(user_contains=INTAKE, after="user"), steps=(CallTools(calls),))
    # Asked again after the denial, the model would close the work.
    stage = FlowStage(tmp_path, both, ends("Go on.", CLOSED), ends(INTAKE, CLOSED))
    flow = await begun(stage, consent="no-access")
    running = asyncio.ensure_future(flow.run())
    await stage.store.answer(await asking(stage), "deny", by="ana", note="not there")
    run = await running
    assert run.awaiting_human_nodes["owner-intake"].reason == "consent-denied"
    messages = await (await flow.session("owner")).messages()
    called = [call.id for message in messages for call in message.tool_calls]
    parts = [part for message in messages for part in message.parts]
    results = [part.call_id for part in parts if isinstance(part, ToolResultPart)]
    assert sorted(results) == sorted(called)
    await flow.reply("Go on.")
    assert (await flow.run()).status == "awaiting_improvement_choice"


async def test_approval_question_of_a_review_survives_a_restart(tmp_path: Path) -> None:
    # Weakness 10 of the specification.
    stage = FlowStage(tmp_path, ends(INTAKE, CLOSED))
    flow = await begun(stage, consent="no-access")
    await flow.run()
    await flow.choose_improvement("parallel")
    restarted(
        stage,
        writes(LOOKING_BACK, f"record/{LOOKING_BACK}"),
        ends(LOOKING_BACK, "meta-analysis-complete", findings_path=LOOKING_BACK),
    )
    running = asyncio.ensure_future((await stage.flows("owner").open("f")).run())
    question = await asking(stage)
    running.cancel()
    await asyncio.wait((running,))
    await stage.store.answer(question, "allow", by="ana")  # while no process runs it
    run = await (await stage.flows("owner").open("f")).run()
    assert run.status == "awaiting_feedback_consent"


async def test_missing_workspace_is_detected_during_a_review(tmp_path: Path) -> None:
    # Weakness 11 of the specification.
    old = tmp_path / "old"
    old.mkdir()
    stage = FlowStage(old, ends(INTAKE, CLOSED))
    flow = await begun(stage)
    await flow.run()
    await flow.choose_improvement("parallel")
    old.rename(tmp_path / "new")
    with pytest.raises(FlowRefusal, match="workspace=DIR"):
        await flow.run()


@pytest.mark.parametrize(("cached", "compactions"), [(7_800, 0), (7_900, 1)])
async def test_cached_tokens_count_toward_the_context_window(
    tmp_path: Path, cached: int, compactions: int
) -> None:
    # Weakness 13 of the specification.
    ask = Say("Which one?\n```handoff\ntype: prompt-human\n```")
    summary = "The owner asked which one to take, and waits for the answer of the person. " * 3
    usage = Usage(50, 50, cache_read_tokens=cached - 100, cache_write_tokens=100)
    stage = FlowStage(
        tmp_path,
        Reply(when=When(asks_summary=True), steps=(Say(summary),)),
        Reply(when=When(user_contains=INTAKE), steps=(ask,), usage=usage),
        ends("the blue one", CLOSED),
        window=10_000,
    )
    flow = await begun(stage)
    await flow.run()
    await flow.reply("the blue one")
    await flow.run()
    session = await flow.session("owner")
    found = [body_of(entry) async for entry in session.entries()]
    assert len([body for body in found if isinstance(body, Compaction)]) == compactions


async def test_session_with_a_running_turn_cannot_be_compacted(tmp_path: Path) -> None:
    # Weakness 18 of the specification.
    stage = FlowStage(tmp_path, Reply(when=When(user_contains=INTAKE), steps=(Say("…"), Hang())))
    flow = await begun(stage)
    running = asyncio.ensure_future(flow.run())

    async def is_at_work() -> bool:
        return bool((await flow.state()).run.running_nodes)

    await until(is_at_work)
    session = (await flow.state()).sessions["owner"]
    other = Runtime(stage.store, models=stage.models, owner="another")
    place, agent = Workspace(working_dir=str(tmp_path)), Agent("owner", model="scripted:flow")
    compacting = other.host.running(session, agent, place, prompt=None)
    with pytest.raises((LeaseHeld, TurnOpen)):
        await compact(compacting.environment, compacting.terms, focus=None)
    running.cancel()
    await asyncio.wait((running,))
