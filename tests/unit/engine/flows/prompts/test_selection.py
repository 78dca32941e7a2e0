"""The message for a selector."""

from __future__ import annotations

from perdure.engine.flows.prompts.selection import LONGEST_ROLE, answer_form, selection_message
from perdure.session.flows.graph import FlowNode
from perdure.session.flows.kinds import Offers, SelectorOpened
from perdure.session.ids import StreamId

NODE = FlowNode("build", "developer", work=("Write it.",), guidance=("In small steps.",))
OPENED = SelectorOpened(
    "developer",
    StreamId("f__developer__selector-2"),
    2,
    Offers(("p:small", "p:big"), {"tests": "How we test."}),
    "there is no model 'p:huge'",
)


def test_selector_message_contains_task_offers_and_error() -> None:
    told = selection_message(OPENED, "a change", NODE, "You develop.")
    for words in (
        *("Role instance `developer`", "'a change'", "there is no model 'p:huge'", "You develop."),
        *("node `build`\n- Write it.\n- In small steps.", "- p:big", "- tests: How we test."),
    ):
        assert words in told
    assert told.endswith("model=NAME skills=NAME,NAME (or skills=none)")


def test_selector_answer_form_omits_settings_without_choices() -> None:
    assert answer_form(Offers((), {"tests": ""})) == "skills=NAME,NAME (or skills=none)"
    assert answer_form(Offers(("a:b", "c:d"))) == "model=NAME"


def test_long_role_document_is_truncated() -> None:
    told = selection_message(OPENED, "f", None, "x" * (LONGEST_ROLE + 1))
    assert "x" * LONGEST_ROLE in told
    assert "x" * (LONGEST_ROLE + 1) not in told
    assert "It looks back" in told
