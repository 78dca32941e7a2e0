"""Advice for `perdure config set`."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.apps.settings.advice import advice_to_set


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["chat.model", "openai:x"], '[chat]: model = "openai:x"'),
        (["chat.turn_cap", "80"], "[chat]: turn_cap = 80"),
        (["chat.auto_compact", "false"], "[chat]: auto_compact = false"),
        (["chat.first_byte_timeout_s", "5"], "[chat]: first_byte_timeout_s = 5"),
        (
            ["chat.allowed_commands", "git log", "ls"],
            '[chat]: allowed_commands = ["git log", "ls"]',
        ),
        (
            ["store.address", "postgresql://me:secret@db.example/a"],
            '[store]: address = "postgresql://me:[redacted]@db.example/a"',
        ),
    ],
)
def test_settings_advice_contains_line_section_and_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], line: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    section, _, setting = line.partition(": ")
    advice = advice_to_set(["config", "set", *words])
    assert advice is not None
    assert f"write {setting} in the section {section} of {tmp_path}" in advice


@pytest.mark.parametrize("words", [[], ["chat.model"], ["chat.modle", "x"], ["mcp.servers", "x"]])
def test_unknown_setting_or_missing_value_gives_no_advice(words: list[str]) -> None:
    assert advice_to_set(["config", "set", *words]) is None
