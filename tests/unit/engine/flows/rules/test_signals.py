"""Parsing of signals, and the messages about invalid signals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.engine.flows.rules.signals import (
    Fault,
    FeedbackComplete,
    Handover,
    MetaAnalysisComplete,
    Plain,
    signal_in,
)
from perdure.session.flows.kinds import HandoffTarget


def block(yaml: str, tag: str = "handoff") -> str:
    return f"I am done.\n\n```{tag}\n{yaml}\n```\n"


def test_handoff_to_one_or_several_targets_is_parsed() -> None:
    one = signal_in(block("target_node_id: review\nartifact_path: a.md"))
    assert one == Handover((HandoffTarget("review", "a.md"),))
    two = signal_in(
        block("- target_node_id: x\n  artifact_path: a.md\n- target_node_id: y\n  artifact_path: b")
    )
    assert two == Handover((HandoffTarget("x", "a.md"), HandoffTarget("y", "b")))


@pytest.mark.parametrize("kind", ["prompt-human", "await-handoff", "forward-pass-closed"])
def test_signals_that_consist_only_of_a_type_are_parsed(kind: str) -> None:
    assert signal_in(block(f"type: {kind}")) == Plain(kind)  # pyright: ignore[reportArgumentType] - the parameters are its literals


def test_signals_that_end_a_role_review_or_feedback_are_parsed() -> None:
    found = signal_in(block("type: meta-analysis-complete\nfindings_path: findings/a.md"))
    assert found == MetaAnalysisComplete("findings/a.md")
    back = signal_in(block("type: backward-pass-complete\nartifact_path: f.md"))
    assert back == FeedbackComplete("f.md")


def test_last_signal_block_is_used() -> None:
    text = block("type: prompt-human") + block("type: await-handoff", "HandOff")
    assert signal_in(text) == Plain("await-handoff")


def test_tilde_and_longer_fences_are_accepted() -> None:
    assert signal_in("~~~handoff\ntype: prompt-human\n~~~") == Plain("prompt-human")
    assert signal_in("````handoff\ntype: prompt-human\n````") == Plain("prompt-human")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("all done", "missing_block"),
        ("```handoff\ntype: prompt-human", "missing_block"),
        (block("a: [1"), "yaml_parse"),
        (block("a: 1\na: 2"), "yaml_parse"),
        (block("x" * 200_000), "yaml_parse"),
        (block("just words"), "invalid_target_shape"),
        (block("[]"), "invalid_target_shape"),
        (block("- just words"), "invalid_target_shape"),
        (block("target_node_id: a"), "missing_required_field"),
        (block("target_node_id: 7\nartifact_path: a"), "missing_required_field"),
        (block("type: meta-analysis-complete"), "missing_required_field"),
        (block("type: backward-pass-complete"), "missing_required_field"),
        (block("type: dance"), "unknown_signal_type"),
        (block("type: {a: 1}"), "unknown_signal_type"),
    ],
)
def test_unusable_block_is_reported_with_valid_form(text: str, code: str) -> None:
    fault = signal_in(text)
    assert isinstance(fault, Fault)
    assert fault.code == code
    assert "```handoff" in fault.message
    assert len(fault.summary) < 200


def test_yaml_alias_in_a_signal_is_not_expanded_to_a_huge_value() -> None:
    levels = "\n".join(
        f"l{n}: &l{n} [{', '.join(f'*l{n - 1}' for _ in range(9))}]" for n in range(1, 12)
    )
    fault = signal_in(block(f"l0: &l0 [x]\n{levels}\ntype: *l11"))
    assert isinstance(fault, Fault)
    assert fault.code == "unknown_signal_type"


@given(st.text(max_size=200))
def test_any_text_gives_a_signal_or_a_fault(yaml: str) -> None:
    assert signal_in(block(yaml)) is not None
    assert signal_in(yaml) is not None
