""" "Allow for the flow" stores the consent and the answers that it gives in one commit."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from perdure.client.flows.flow import Flow
from perdure.client.reads import OpenQuestion
from perdure.errors import AlreadyAnswered
from perdure.models.scenario import CallTools, Reply, ScriptedCall, When
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.ids import StreamId
from perdure.session.notes import Answer
from perdure.tools.permissions import Permissions
from tests.fakes.chats import until
from tests.fakes.flow_stage import FlowStage, ends, hands
from tests.fakes.rivals import meanwhile

pytestmark = pytest.mark.full_only

SPLIT = Graph(
    "two at once",
    (
        FlowNode("owner-intake", "owner"),
        FlowNode("a", "developer"),
        FlowNode("b", "reviewer"),
        FlowNode("end", "owner", awaits_all_inputs=True),
    ),
    tuple(
        FlowEdge(*pair)
        for pair in (("owner-intake", "a"), ("owner-intake", "b"), ("a", "end"), ("b", "end"))
    ),
)
ALONE = Graph("alone", (FlowNode("owner-intake", "owner"),))
ROLES = ("owner", "developer", "reviewer")


def writing(folder: Path) -> FlowStage:
    """Return a stage whose roles write a file before they hand over."""
    return FlowStage(
        folder,
        *hands("Node `owner-intake`", "record", "plan.md", "a", "b"),
        *hands("Node `a`", "record", "a.md", "end"),
        *hands("Node `b`", "record", "b.md", "end"),
        ends("Node `end`", "forward-pass-closed"),
    )


async def asked(stage: FlowStage, count: int) -> list[OpenQuestion]:
    """Return the waiting questions, once there are `count` of them."""

    async def is_asked() -> bool:
        return len(await stage.store.questions()) == count

    await until(is_asked)
    return await stage.store.questions()


async def running(stage: FlowStage, graph: Graph, *roles: str) -> tuple[Flow, asyncio.Task[object]]:
    commands = Permissions(allowed_command_globs=("make *",))
    flow = await stage.flows(*roles, permissions=commands).start(
        graph, workspace=stage.workspace, record_folder="record", id="f"
    )
    return flow, asyncio.create_task(flow.run())


async def test_allowing_a_call_for_the_flow_continues_other_waiting_roles(
    tmp_path: Path,
) -> None:
    stage = writing(tmp_path)
    flow, task = await running(stage, SPLIT, *ROLES)
    (first,) = await asked(stage, 1)
    assert first.question.choices == ("allow", "allow-flow", "deny")
    assert "from now on files may be written in this flow" in first.question.text
    await stage.store.answer(first.id, "allow", by="ana")  # once is once
    one, _ = await asked(stage, 2)
    head = (await flow.state()).head
    await stage.store.answer(one.id, "allow-flow", by="ana")
    await task
    state = await flow.state()
    assert state.run.consent_state.mode == "partial-access"
    assert state.run.status == "awaiting_improvement_choice"
    changed = [e for e in await stage.memory.entries(flow.id, head) if e.kind == "flow_consent"]
    assert len(changed) == 1
    with pytest.raises(AlreadyAnswered, match="'allow-flow' by ana"):
        await stage.store.answer(one.id, "deny", by="bob")
    again = await stage.store.answer(one.id, "allow-flow", by="ana")
    assert again.about == one.id


async def test_command_grant_matches_exact_text(tmp_path: Path) -> None:
    call = ScriptedCall("run_command", '{"command": "make test"}')
    stage = FlowStage(
        tmp_path,
        Reply(when=When(user_contains="Node `", after="user"), steps=(CallTools((call,)),)),
        ends("Node `", "forward-pass-closed"),
    )
    flow, task = await running(stage, ALONE, "owner")
    (question,) = await asked(stage, 1)
    assert "this very command may be run" in question.question.text
    await stage.store.answer(question.id, "allow-flow", by="ana")
    await task
    consent = (await flow.state()).run.consent_state
    assert [*consent.bash.allowed_commands] == ["make test"]
    assert consent.mode == "partial-access"


async def test_denial_affects_only_the_role_that_asked(tmp_path: Path) -> None:
    stage = writing(tmp_path)
    flow, task = await running(stage, SPLIT, *ROLES)
    (first,) = await asked(stage, 1)
    await stage.store.answer(first.id, "deny", by="ana", note="not today")
    await task
    assert (await flow.state()).run.consent_state.mode == "no-access"


async def test_change_to_full_access_answers_open_questions(
    tmp_path: Path,
) -> None:
    stage = writing(tmp_path)
    flow, task = await running(stage, SPLIT, *ROLES)
    await asked(stage, 1)
    await flow.consent("full-access", by="ana")
    run = await task
    assert (await flow.state()).run == run
    assert await stage.store.questions() != []  # how to look back


async def test_answer_given_during_a_change_of_consent_is_the_only_answer(tmp_path: Path) -> None:
    stage = writing(tmp_path)
    flow, task = await running(stage, SPLIT, *ROLES)
    (first,) = await asked(stage, 1)
    real = stage.memory.open_questions

    async def read(stream: StreamId) -> list[Entry]:
        found = await real(stream)
        setattr(stage.memory, "open_questions", real)  # noqa: B010 - only the first read
        await stage.store.answer(first.id, "deny", by="bob")
        return found

    setattr(stage.memory, "open_questions", read)  # noqa: B010 - a person at the same moment
    await flow.consent("full-access", by="ana")
    await task
    notes = await stage.memory.notes(StreamId("f__owner"), (Answer.kind,))
    answers = [body for note in notes if isinstance(body := body_of(note), Answer)]
    assert [(answer.choice, answer.by) for answer in answers] == [("deny", "bob")]


async def test_denial_just_before_a_call_is_allowed_for_the_flow_is_the_only_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = writing(tmp_path)
    flow, task = await running(stage, SPLIT, *ROLES)
    (first,) = await asked(stage, 1)
    rival = partial(stage.store.answer, first.id, "deny", by="bob")
    meanwhile(monkeypatch, stage.memory, Answer.kind, rival)
    with pytest.raises(AlreadyAnswered, match="by bob"):
        await stage.store.answer(first.id, "allow-flow", by="ana")
    assert not [e for e in await stage.memory.entries(flow.id) if e.kind == "flow_consent"]
    task.cancel()
    await asyncio.wait((task,))
