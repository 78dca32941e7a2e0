"""The inbox lists the waits of flows, and accepts answers to them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from perdure.client.flows.flow import Flow
from perdure.errors import (
    AlreadyAnswered,
    EntryNotFound,
    InvalidEntry,
    QuestionNotFound,
    SessionNotFound,
)
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from tests.fakes.flow_stage import FlowStage, ends, hands, says
from tests.fakes.rivals import meanwhile

pytestmark = pytest.mark.full_only

LINE = Graph(
    "a change",
    (
        FlowNode("owner-intake", "owner", has_human=True),
        FlowNode("build", "developer"),
        FlowNode("end", "owner"),
    ),
    (FlowEdge("owner-intake", "build"), FlowEdge("build", "end")),
)
ASKING = "By train or by plane?\n```handoff\ntype: prompt-human\n```"


def stage_in(folder: Path) -> FlowStage:
    """Return a stage: the owner asks, then hands over a file that a person must approve."""
    return FlowStage(
        folder,
        says("Node `owner-intake` started", ASKING),
        *hands("train", "record", "plan.md", "build"),
        *hands("Node `build`", "record", "done.md", "end"),
        ends("Node `end`", "forward-pass-closed"),
    )


async def begun(stage: FlowStage) -> Flow:
    flow = await stage.flows("owner", "developer").start(
        LINE, workspace=stage.workspace, record_folder="record", consent="full-access", id="trip"
    )
    await flow.run()
    return flow


async def test_flow_can_be_completed_with_only_the_inbox(tmp_path: Path) -> None:
    stage = stage_in(tmp_path)
    flow = await begun(stage)
    for topic, answer, status in (
        ("prompt-human", "By train, please.", "running"),
        ("handoff-approval", "approve", "awaiting_improvement_choice"),
        ("improvement-choice", "none", "completed"),
    ):
        (asked,) = await stage.store.questions()
        assert (asked.question.topic, asked.flow) == (topic, "trip")
        entry = await stage.store.answer(asked.id, answer, by="ana")
        assert entry.stream == "trip"
        # Any process can run it after any restart, because it needs only the log.
        again = await stage.flows("owner", "developer").open("trip")
        assert (await again.run()).status == status
    assert await stage.store.questions() == []
    assert (await flow.state()).run.status == "completed"


async def test_inbox_shows_the_text_of_a_question_without_choices(tmp_path: Path) -> None:
    stage = stage_in(tmp_path)
    await begun(stage)
    (asked,) = await stage.store.questions()
    assert asked.question.text.endswith("waits for a reply: By train or by plane?")
    assert (asked.target, asked.question.choices) == ("owner-intake", ())
    assert await stage.store.answer(asked.id, "By train.", by="ana")


async def test_second_answer_to_a_question_raises_an_error(
    tmp_path: Path,
) -> None:
    stage = stage_in(tmp_path)
    await begun(stage)
    (asked,) = await stage.store.questions()
    answers = ("By train.", "By plane.")
    told = await asyncio.gather(
        *(stage.store.answer(asked.id, each, by="ana") for each in answers),
        return_exceptions=True,
    )
    (refused,) = [each for each in told if isinstance(each, BaseException)]
    assert isinstance(refused, AlreadyAnswered)
    won = answers[0] if isinstance(told[1], BaseException) else answers[1]
    assert (refused.choice, refused.by) == (won, "ana")
    first = await stage.store.answer(asked.id, won, by="ana")  # the same again is no other answer
    assert first in told


async def test_flow_commands_answer_same_questions_as_inbox(tmp_path: Path) -> None:
    stage = stage_in(tmp_path)
    flow = await begun(stage)
    (asked,) = await stage.store.questions()
    await flow.reply("By train.", by="bob")
    with pytest.raises(AlreadyAnswered, match=r"'By train\.' by bob"):
        await stage.store.answer(asked.id, "By plane.", by="ana")
    await flow.run()
    (staged,) = await stage.store.questions()
    with pytest.raises(AlreadyAnswered):  # still not, though the node waits again
        await stage.store.answer(asked.id, "By plane.", by="ana")
    await stage.store.answer(staged.id, "decline", by="ana", note="Longer, please.")
    (now,) = await stage.store.questions()
    assert (now.question.topic, now.id != staged.id) == ("prompt-human", True)


async def test_invalid_question_or_answer_is_rejected_with_its_reason(tmp_path: Path) -> None:
    stage = stage_in(tmp_path)
    flow = await begun(stage)
    for question, error in (
        ("trip/0", QuestionNotFound),
        ("trip/999", QuestionNotFound),
        ("ghost/1", SessionNotFound),
        ("ghost", QuestionNotFound),
        (f"{flow.id}__owner/0", InvalidEntry),
        (f"{flow.id}__owner/999", EntryNotFound),
    ):
        with pytest.raises(error):
            await stage.store.answer(question, "By train.", by="ana")
    await flow.reply("By train.")
    await flow.run()
    (staged,) = await stage.store.questions()
    with pytest.raises(InvalidEntry, match="none of the answers approve, decline"):
        await stage.store.answer(staged.id, "By train.", by="ana")


async def test_answer_given_just_before_another_answer_to_a_flow_is_the_only_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_in(tmp_path)
    await begun(stage)
    (asked,) = await stage.store.questions()
    rival = partial(stage.store.answer, asked.id, "By plane.", by="bob")
    meanwhile(monkeypatch, stage.memory, "human_replied", rival)
    with pytest.raises(AlreadyAnswered, match="by bob"):
        await stage.store.answer(asked.id, "By train.", by="ana")
