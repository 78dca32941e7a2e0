"""The numbered scenarios of the specification that need real sessions, tools and files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.apps.flow.flow_rows import list_rows
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.engine.turns.executor.partial_answers import EVERY_S
from perdure.errors import ConfigError, FlowRefusal
from perdure.models.scenario import CallTools, Hang, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.session.codec import body_of
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.kinds import ConsentMode
from perdure.session.kinds import Compaction
from perdure.session.messages import ToolResultPart, Usage
from perdure.tools.decorator import tool
from perdure.tools.permissions import Permissions
from perdure.workflow.document import Workflow
from tests.fakes.chats import until
from tests.fakes.documents import document
from tests.fakes.flow_stage import FlowStage, ends, hands, says, writes
from tests.fakes.unreadable import unreadable

RECORD = "record"
NODES = (
    FlowNode("owner-intake", "owner", work=("Plan the change.",), required_readings=("$RULES",)),
    FlowNode("build", "developer", work=("Build it.",)),
    FlowNode("end", "owner", work=("Close it.",)),
)
LINE = Graph("a change", NODES, (FlowEdge("owner-intake", "build"), FlowEdge("build", "end")))
ALONE = Graph("alone", (FlowNode("owner-intake", "owner"),))
INTAKE = "Node `owner-intake` started"


def prepared(folder: Path) -> Path:
    """Return a workspace whose project has an index."""
    (folder / "a-docs").mkdir()
    (folder / "a-docs" / "index.yaml").write_text("index:\n  $RULES: rules.md\n")
    (folder / "rules.md").write_text("Be brief.")
    return folder


async def begun(
    flows: Flows, folder: Path, graph: Graph = ALONE, consent: ConsentMode = "no-access"
) -> Flow:
    return await flows.start(graph, workspace=folder, record_folder=RECORD, consent=consent)


async def texts(flow: Flow, role: str) -> list[str]:
    """Return the user messages of a role's session, in order."""
    messages = await (await flow.session(role)).messages()
    return [message.text for message in messages if message.role == "user"]


async def test_reopened_node_does_not_receive_its_required_reading_again(tmp_path: Path) -> None:
    # Scenario 17 of the specification.
    stage = FlowStage(
        prepared(tmp_path),
        *hands(INTAKE, RECORD, "plan.md", "build"),
        *hands("Node `build` started", RECORD, "no.md", "owner-intake"),
        *hands("Node `owner-intake` resumed", RECORD, "plan2.md", "build"),
        *hands("Node `build` resumed", RECORD, "done.md", "end"),
        ends("Node `end` started", "forward-pass-closed"),
    )
    flow = await begun(stage.flows("owner", "developer"), tmp_path, LINE, "full-access")
    assert (await flow.run()).status == "awaiting_improvement_choice"
    first, again, end = await texts(flow, "owner")
    assert "Plan the change." in first
    assert "Be brief." in first
    assert "Plan the change." not in again
    assert "Be brief." not in again
    assert "what no.md says" in again
    assert "Close it." in end


async def test_turn_of_a_dead_process_is_continued(tmp_path: Path) -> None:
    # Scenario 18 of the specification.
    part = "This is the part that was said before. " * 80
    hanging = Reply(when=When(user_contains=INTAKE), steps=(Say(part), Hang()), chunk_chars=400)
    stage = FlowStage(tmp_path, hanging)
    flow = await begun(stage.flows("owner"), tmp_path)
    running = asyncio.ensure_future(flow.run())
    session = f"{flow.id}__owner"

    async def is_kept() -> bool:
        stage.clock.advance(EVERY_S)
        known = (await flow.state()).sessions
        return bool(known) and await stage.memory.partial(known["owner"]) is not None

    await until(is_kept)
    running.cancel()  # the process stops in the middle of the answer
    await asyncio.wait((running,))
    stage.models = ScriptedModel(
        Scenario(name="flow", rules=(ends("", "forward-pass-closed"),)), clock=stage.clock
    )
    run = await (await stage.flows("owner").open(flow.id)).run()
    assert run.status == "awaiting_improvement_choice"
    messages = await (await stage.store.open(session)).messages()
    assert part.startswith(messages[1].text.strip()[:100])
    assert [message.role for message in messages] == ["user", "assistant", "assistant"]
    claims = [k for k in await kinds(stage, flow.id) if k == "node_claimed"]
    assert len(claims) == 1  # it was never entered again


async def kinds(stage: FlowStage, stream: str) -> list[str]:
    found = await stage.memory.find(stream)
    return [entry.kind for entry in await stage.memory.entries(found)]


async def test_handoff_approved_by_a_person_needs_no_further_turn(tmp_path: Path) -> None:
    # Scenario 19 of the specification.
    nodes = (FlowNode("owner-intake", "owner", has_human=True), *NODES[1:])
    stage = FlowStage(
        tmp_path,
        *hands(INTAKE, RECORD, "plan.md", "build"),
        *hands("Node `build`", RECORD, "done.md", "end"),
        ends("Node `end`", "forward-pass-closed"),
    )
    graph = Graph("approved", nodes, LINE.edges)
    flow = await begun(stage.flows("owner", "developer"), tmp_path, graph, "full-access")
    run = await flow.run()
    assert run.visited_node_ids == ("owner-intake",)
    (waiting,) = await flow.waiting()
    assert (waiting.topic, waiting.choices) == ("handoff-approval", ("approve", "decline"))
    turns = await texts(flow, "owner")
    assert (await flow.approve()).run.completed_handoffs == ("owner-intake=>build",)
    assert await texts(flow, "owner") == turns
    assert (await flow.run()).status == "awaiting_improvement_choice"


async def test_declined_handoff_and_its_note_reach_the_role(tmp_path: Path) -> None:
    nodes = (FlowNode("owner-intake", "owner", has_human=True), *NODES[1:])
    stage = FlowStage(
        tmp_path,
        *hands(INTAKE, RECORD, "plan.md", "build"),
        *hands("name who signs", RECORD, "signed.md", "build"),
    )
    graph = Graph("declined", nodes, LINE.edges)
    flow = await begun(stage.flows("owner", "developer"), tmp_path, graph, "full-access")
    await flow.run()
    await flow.decline(note="name who signs", by="ana")
    await flow.reply("It is Bo.")
    run = await flow.run()
    (said,) = [text for text in await texts(flow, "owner") if "It is Bo." in text]
    assert "ana declined your handoff of plan.md to `build`: name who signs" in said
    assert run.pending_handoff_approvals["owner-intake"][0].artifact == "signed.md"


def spoils(at: str) -> Reply:
    """In the turn whose message contains `at`, write an invalid workflow file."""
    call = CallTools((ScriptedCall("spoil"),))
    return Reply(when=When(user_contains=at, after="user"), steps=(call,))


async def asked(flow: Flow, count: int) -> None:
    """Wait until `count` tool calls of the flow wait for consent."""

    async def is_asked() -> bool:
        return len([w for w in await flow.waiting() if w.topic == "consent"]) == count

    await until(is_asked)


async def answered(stage: FlowStage, flow: Flow, choice: str) -> None:
    waiting = next(w for w in await flow.waiting() if w.question is not None)
    assert waiting.question is not None
    session = await stage.store.open(waiting.question.rpartition("/")[0])
    await session.answer(waiting.question, choice, by="me")


async def test_permission_granted_for_a_flow_applies_to_all_roles(tmp_path: Path) -> None:
    # Scenario 22 of the specification.
    split = Graph(
        "two at once",
        (NODES[0], FlowNode("a", "developer"), FlowNode("b", "reviewer"), NODES[2]),
        tuple(
            FlowEdge(*pair)
            for pair in (("owner-intake", "a"), ("owner-intake", "b"), ("a", "end"), ("b", "end"))
        ),
    )
    stage = FlowStage(
        prepared(tmp_path),
        *hands(INTAKE, RECORD, "plan.md", "a", "b"),
        *hands("Node `a` started", RECORD, "a.md", "end"),
        *hands("Node `b` started", RECORD, "b.md", "end"),
        says("Node `end`", "Done.\n```handoff\ntype: await-handoff\n```"),
    )
    flow = await begun(stage.flows("owner", "developer", "reviewer"), tmp_path, split)
    running = asyncio.ensure_future(flow.run())
    await asked(flow, 1)
    await answered(stage, flow, "allow")
    await asked(flow, 2)  # the next writes ask again, each role by itself
    await flow.consent("partial-access", by="me")
    run = await running
    assert run.consent_state.mode == "partial-access"
    assert {"a=>end", "b=>end"} <= set(run.history_handoff)


@pytest.mark.parametrize(
    ("mode", "command", "is_asked"),
    [
        ("partial-access", "make test", False),
        ("no-access", "make test", True),
        ("partial-access", "make all", True),
        ("no-access", "pwd", False),
        ("no-access", "ls -la src", False),
        ("no-access", "ls /tmp", True),
        ("no-access", "ls ../other", True),
    ],
)
async def test_command_grant_covers_only_the_exact_command(
    tmp_path: Path, mode: ConsentMode, command: str, is_asked: bool
) -> None:
    # Scenario 23 of the specification.
    call = ScriptedCall("run_command", f'{{"command": "{command}"}}')
    stage = FlowStage(
        tmp_path,
        Reply(when=When(user_contains=INTAKE, after="user"), steps=(CallTools((call,)),)),
        ends(INTAKE, "forward-pass-closed"),
    )
    allowed = Permissions(
        allowed_command_globs=("make *", "ls **", "ls -la *", "ls ../*"), allowed_commands=("pwd",)
    )
    flow = await begun(stage.flows("owner", permissions=allowed), tmp_path)
    await flow.consent("partial-access", command="make test")
    await flow.consent(mode)
    running = asyncio.ensure_future(flow.run())
    if is_asked:
        await asked(flow, 1)
        running.cancel()
        await asyncio.wait((running,))
    else:
        assert (await running).status == "awaiting_improvement_choice"


async def test_shell_command_is_rejected_without_a_question(
    tmp_path: Path,
) -> None:
    # Scenario 23 of the specification.
    call = ScriptedCall("run_command", '{"command": "ls && rm x"}')
    stage = FlowStage(
        tmp_path,
        Reply(when=When(user_contains=INTAKE, after="user"), steps=(CallTools((call,)),)),
        ends(INTAKE, "forward-pass-closed"),
    )
    flow = await begun(stage.flows("owner"), tmp_path)
    assert (await flow.run()).status == "awaiting_improvement_choice"
    messages = await (await flow.session("owner")).messages()
    (result,) = messages[2].parts
    assert isinstance(result, ToolResultPart)
    assert "there is no shell here" in result.text


@pytest.mark.parametrize(("used", "compactions"), [(7_900, 0), (8_000, 1)])
async def test_context_is_compacted_at_80_percent_of_the_window(
    tmp_path: Path, used: int, compactions: int
) -> None:
    # Scenario 24 of the specification.
    ask = "Which one?\n```handoff\ntype: prompt-human\n```"
    summary = "The owner asked which one to take, and waits for the answer of the person. " * 3
    stage = FlowStage(
        tmp_path,
        Reply(when=When(asks_summary=True), steps=(Say(summary),)),
        Reply(when=When(user_contains=INTAKE), steps=(Say(ask),), usage=Usage(used - 100, 100)),
        ends("the blue one", "forward-pass-closed"),
        window=10_000,
    )
    flow = await begun(stage.flows("owner"), tmp_path)
    await flow.run()
    await flow.reply("the blue one")
    assert (await flow.run()).status == "awaiting_improvement_choice"
    session = await flow.session("owner")
    entries = [entry async for entry in session.entries()]
    found = [body for entry in entries if isinstance(body := body_of(entry), Compaction)]
    assert len(found) == compactions
    assert any("Which one?" in e.message.text for e in entries if e.message is not None)


async def test_write_that_removes_a_started_node_is_rejected(
    tmp_path: Path,
) -> None:
    # Scenario 25 of the specification.
    without = "workflow:\n  name: x\n  nodes: [{id: other, role: owner}]\n  edges: []\n"
    stage = FlowStage(
        prepared(tmp_path),
        writes(INTAKE, f"{RECORD}/workflow.yaml", without),
        ends(INTAKE, "prompt-human"),
    )
    flow = await begun(stage.flows("owner", "developer"), tmp_path, LINE)
    before = (tmp_path / RECORD / "workflow.yaml").read_text()
    run = await flow.run()  # in a flow without any access, every other call would ask
    assert run.awaiting_human_nodes["owner-intake"].reason == "prompt-human"
    assert (tmp_path / RECORD / "workflow.yaml").read_text() == before
    (result,) = (await (await flow.session("owner")).messages())[2].parts
    assert isinstance(result, ToolResultPart)
    assert "the flow could not continue with that workflow.yaml" in result.text


async def test_owner_is_asked_to_repair_an_invalid_workflow(
    tmp_path: Path,
) -> None:
    # Scenario 25 of the specification.
    stage = FlowStage(
        prepared(tmp_path),
        spoils(INTAKE),
        ends(INTAKE, "prompt-human"),
        ends("Put it right", "prompt-human"),
    )

    @tool(effect="write")
    async def spoil() -> str:
        """Write an invalid workflow to the file."""
        (tmp_path / RECORD / "workflow.yaml").write_text(
            "workflow: {name: x, nodes: [], edges: []}"
        )
        return "done"

    flows = stage.flows("owner", "developer", tools=[spoil])
    flow = await begun(flows, tmp_path, LINE, "full-access")
    run = await flow.run()
    told = await texts(flow, "owner")
    assert "a workflow needs at least one node" in told[1]
    assert run.awaiting_human_nodes["owner-intake"].reason == "autonomous-abort"
    assert (await flow.state()).graph == LINE


async def test_role_can_be_stopped_after_its_answer_text_is_complete(tmp_path: Path) -> None:
    # Scenario 26 of the specification.
    said = Reply(
        when=When(user_contains=INTAKE),
        steps=(Say("```handoff\ntype: forward-pass-closed\n```"), Hang()),
    )
    stage = FlowStage(tmp_path, said)
    flow = await begun(stage.flows("owner"), tmp_path)
    running = asyncio.ensure_future(flow.run())

    async def is_at_work() -> bool:
        return bool((await flow.state()).run.running_nodes)

    await until(is_at_work)
    await flow.stop("owner")
    run = await running
    assert run.status == "running"
    assert run.awaiting_human_nodes["owner-intake"].reason == "autonomous-abort"


async def test_flow_reports_a_missing_workspace_and_continues_in_another_workspace(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    stage = FlowStage(old, ends(INTAKE, "forward-pass-closed"))
    flow = await begun(stage.flows("owner"), old)
    old.rename(new)
    with pytest.raises(FlowRefusal, match="workspace=DIR"):
        await stage.flows("owner").open(flow.id)
    with pytest.raises(FlowRefusal, match="no record folder"):
        await stage.flows("owner").open(flow.id, workspace=tmp_path)
    moved = await stage.flows("owner").open(flow.id, workspace=new)
    run = await moved.run()
    assert (run.status, run.workspace_root) == ("awaiting_improvement_choice", str(new))


async def test_role_without_agent_waits_and_is_named_in_reason(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path)
    flow = await begun(stage.flows("developer"), tmp_path)
    run = await flow.run()
    assert "role 'owner' has no agent" in (run.awaiting_human_nodes["owner-intake"].detail or "")


async def test_workflow_without_a_required_reading_does_not_start(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path)
    with pytest.raises(ConfigError, match=r"node 'owner-intake': \$RULES is not in"):
        await begun(stage.flows("owner"), tmp_path, LINE)


@pytest.mark.parametrize("workflow", [ALONE, document("in>plan", "plan>out")])
async def test_workspace_in_a_folder_without_permission_is_an_error(
    tmp_path: Path, workflow: Graph | Workflow
) -> None:
    stage = FlowStage(tmp_path)
    (tmp_path / "closed").mkdir()
    told = pytest.raises(ConfigError, match="cannot be used: Permission denied; check the owner")
    with unreadable(tmp_path / "closed"), told:
        await stage.flows("owner").start(workflow, workspace=tmp_path / "closed" / "project")


async def test_flows_are_listed_newest_first_and_found_by_prefix(
    tmp_path: Path,
) -> None:
    stage = FlowStage(tmp_path, ends(INTAKE, "forward-pass-closed"))
    flows = stage.flows("owner")
    ids: list[str] = []
    for named in ("m", "z", "a"):
        ids.append((await flows.start(ALONE, workspace=tmp_path, id=named)).id)
        stage.clock.advance(1)
    ids.append((await flows.start(ALONE, workspace=tmp_path)).id)
    assert [state.run.flow_id for state in await flows.list()] == ids[::-1]
    assert [row.flow for row in await list_rows(stage.store)] == ids[::-1]
    assert (await flows.state(ids[0])).run.record_folder_path.endswith(f".perdure/records/{ids[0]}")
