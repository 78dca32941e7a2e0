"""Waits for a person are shown with the commands that answer them; a feed is shown as lines."""

from __future__ import annotations

import pytest

from perdure.apps.flow.picture.description import (
    answer,
    feed_lines,
    newest_words,
    picture,
    spoken,
    wait_data,
    waits,
)
from perdure.apps.terminal.style import Style
from perdure.engine.flows.rules.flow_waits import FlowWait
from perdure.engine.flows.rules.improvement import order_by_graph
from perdure.session.flows.feed import FeedItem
from perdure.session.flows.kinds import (
    FindingsMade,
    ForwardPassClosed,
    ImprovementChosen,
    ImprovementClaimed,
)
from perdure.session.ids import EntryId, StreamId
from perdure.session.notes import QuestionTopic
from tests.fakes.flow_log import FlowLog, graph

PLAIN = Style()
MODES = ("graph-based", "none")


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("prompt-human", 'perdure flow reply f --to a "..."'),
        ("autonomous-abort", 'perdure flow reply f --to a "..."'),
        ("consent-denied", 'perdure flow reply f --to a "..."'),
        ("handoff-approval", "perdure flow approve f a   (or with --decline)"),
        ("role-configuration", "perdure flow configure f ROLE --model MODEL"),
        ("improvement-choice", "perdure flow improve f graph-based|none"),
        ("feedback-consent", "perdure flow feedback f grant|deny"),
    ],
)
def test_every_question_of_a_flow_shows_the_command_to_answer(
    topic: QuestionTopic, words: str
) -> None:
    assert answer("f", FlowWait(topic, "a", "It waits.", MODES)) == words


def test_consent_question_is_answered_in_the_inbox() -> None:
    asked = FlowWait("consent", "a", "May it?", ("approve", "deny"), EntryId("s/4"))
    assert answer("f", asked) == "perdure inbox answer s/4 approve|deny"
    assert wait_data("f", asked)["answer"] == answer("f", asked)


def test_question_is_shown_with_the_command_that_answers_it() -> None:
    asked = FlowWait(
        "prompt-human", "plan", "plan (owner) asks, and waits for a reply", role="owner"
    )
    assert list(waits("f", [asked], {"owner": "By train?"})) == [
        "  plan (owner) asks, and waits for a reply",
        "    “By train?”",
        '    perdure flow reply f --to plan "..."',
    ]


def test_handoff_block_is_not_shown_to_people() -> None:
    text = "Done.\n\n```handoff\ntype: prompt-human\n```"
    said = FeedItem("owner_2", "assistant", "owner", text)
    began = FeedItem("owner_1", "activation", "Activated", "Node plan started")
    only_block = FeedItem("owner_3", "assistant", "owner", "```handoff\nx\n```")
    assert spoken(text) == "Done."
    assert newest_words([began, said]) == "Done."
    assert newest_words([began, only_block]) == "Node plan started"
    assert newest_words([]) == ""
    assert list(feed_lines([began, said, only_block], PLAIN, 80)) == [
        "begins   Node plan started",
        "says     Done.",
    ]


def test_flow_description_shows_the_progress_of_the_role_reviews() -> None:
    line = graph("owner-intake>build", "build>end", **{"owner-intake": "owner", "end": "owner"})
    log = FlowLog(line).work("owner-intake", "build").work("build", "end")
    log.claim("end", "build=>end").add(ForwardPassClosed("end"))
    order = order_by_graph(line)
    log.add(ImprovementChosen("graph-based", "me", "improvement.yaml", order))
    log.add(ImprovementClaimed("build", StreamId("f__build")))
    shown = list(picture(log.state, (), PLAIN, 80))
    assert "Improvement  graph-based · running" in shown
    assert shown[-2:] == ["  ○ owner", "  ● build  at work"]
    log.add(FindingsMade("build", "findings/build-findings.md"))
    shown = list(picture(log.state, [FlowWait("prompt-human", "owner", "It waits.")], PLAIN, 80))
    assert "  ✓ build  record/findings/build-findings.md" in shown
    assert shown[-3:] == [
        "Waiting for you:",
        "  It waits.",
        '    perdure flow reply 20260527T143000123Z-a1b2c3 --to owner "..."',
    ]
