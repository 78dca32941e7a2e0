"""Open questions that a flow's consent answers, and the grants of "allow for the flow"."""

from __future__ import annotations

import pytest

from perdure.client.inbox.consent import allowing, granted_by, is_freed
from perdure.session.flows.consent import consent_after
from perdure.session.flows.kinds import ConsentChanged, ConsentMode
from perdure.session.flows.run import ConsentState
from perdure.session.notes import Question, QuestionTopic

CHOICES = ("allow", "allow-flow", "deny")


def asked(
    tool: str,
    grant: str | None = None,
    *free_in: ConsentMode,
    topic: QuestionTopic = "approval",
) -> Question:
    return Question(topic, "May it?", CHOICES, tool=tool, grant=grant, free_in=free_in)


WRITE = asked("write_file", None, "partial-access", "full-access")
COMMAND = asked("run_command", "run_command make test", "full-access")
SERVER = asked("mcp_notes_add", "mcp_notes_add", "full-access")
COMMIT = asked("git_commit")
"""A tool that asks for approval in every mode."""


@pytest.mark.parametrize(
    ("question", "mode", "is_free"),
    [
        (WRITE, "no-access", False),
        (WRITE, "partial-access", True),
        (COMMAND, "partial-access", False),
        (COMMAND, "full-access", True),
        (COMMIT, "full-access", False),
        (asked("t", None, "full-access", topic="budget"), "full-access", False),
    ],
)
def test_consent_mode_decides_which_questions_are_answered_automatically(
    question: Question, mode: ConsentMode, is_free: bool
) -> None:
    assert is_freed(question, ConsentState(mode)) == is_free


@pytest.mark.parametrize("question", [COMMAND, SERVER])
def test_consent_mode_no_access_revokes_granted_calls(
    question: Question,
) -> None:
    now = consent_after(ConsentState(), allowing(question, ConsentState(), "ana"), 0)
    assert is_freed(question, now)
    closed = consent_after(now, ConsentChanged("ana", "no-access"), 0)
    assert not is_freed(question, closed)


def test_allowing_a_call_for_the_flow_changes_the_consent_mode() -> None:
    assert allowing(COMMAND, ConsentState(), "ana") == ConsentChanged(
        "ana", "partial-access", "bash", "make test"
    )
    assert allowing(SERVER, ConsentState("partial-access"), "ana") == ConsentChanged(
        "ana", None, "mcp", "mcp_notes_add"
    )
    assert allowing(WRITE, ConsentState(), "ana") == ConsentChanged("ana", "partial-access")


def test_question_with_an_unsupported_grant_grants_nothing() -> None:
    assert granted_by(asked("http_request", "http_request GET example.org")) is None
    assert granted_by(asked("run_command", "something else")) is None
