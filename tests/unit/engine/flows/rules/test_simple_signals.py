"""A block of plain lines is read without a YAML parser, with the same result as YAML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perdure.engine.flows.rules import signals
from perdure.engine.flows.rules.signals import Fault, Handover, signal_in
from perdure.session.flows.kinds import HandoffTarget
from perdure.yaml.parser import PlainYaml
from tests.fakes.samples import case

VALUES = [
    *(
        "review",
        "a.md",
        "docs/plan.md",
        "step-1",
        "a-b_c.d",
        "null",
        "Null",
        "true",
        "FALSE",
        "yes",
    ),
    *(
        "off",
        "N",
        "y",
        "~",
        "1",
        "0x1f",
        "1.5",
        "2026-01-01",
        "12:30",
        ".inf",
        "a:b",
        "a: b",
        "a #b",
    ),
    *("'a'", '"a"', "[a]", "{a: b}", "&a", "*a", "!a", "|", ">", "a-", "-a", "a/", "a.", "é", "<<"),
    *("nullable", "truer", "e5", "E", "NaN", "none", "a b", "", "  a", "a  ", "@a", "`a`", "a,b"),
]


def test_simple_block_parses_like_yaml() -> None:
    for value in VALUES:
        with case(value):
            text = f"target_node_id: {value}\nartifact_path: a.md\n"
            reader: Any = PlainYaml()
            try:
                expected: object = reader.load(text)
            except Exception:  # noqa: BLE001 - whatever YAML refuses, the fast way must not take
                expected = None
            if signals._SIMPLE.fullmatch(text):  # pyright: ignore[reportPrivateUsage] - it is what is tried
                assert signals._yaml(text) == expected  # pyright: ignore[reportPrivateUsage] - as above


def test_handoff_of_plain_lines_is_parsed_without_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> object:
        raise AssertionError

    monkeypatch.setattr(signals, "parser", SimpleNamespace(PlainYaml=refused))
    text = "Done.\n```handoff\ntarget_node_id: step-77\nartifact_path: out/step-76.md\n```"
    assert signal_in(text) == Handover((HandoffTarget("step-77", "out/step-76.md"),))


def test_duplicate_key_in_a_simple_block_is_a_fault() -> None:
    text = "```handoff\ntarget_node_id: a\ntarget_node_id: b\nartifact_path: c.md\n```"
    assert isinstance(signal_in(text), Fault)
