"""Scenarios are parsed strictly; the documented example is parsed and played."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.models.scenario import (
    CallTools,
    Cut,
    Fail,
    Hang,
    Reply,
    Say,
    Scenario,
    ScriptedCall,
    Think,
    Wait,
    When,
)
from perdure.models.scenario_yaml import load_scenario, read_scenario
from perdure.session.messages import Usage

DOCUMENT = Path(__file__).parents[3] / "docs" / "scenarios.md"


def documented() -> str:
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    return blocks[0]


def test_documented_example_is_parsed_as_described() -> None:
    scenario = read_scenario(documented(), name="unused")
    files = (
        ScriptedCall("read_file", '{"path":"notes.md"}'),
        ScriptedCall("read_file", '{"path":"prices.md"}'),
    )
    assert scenario == Scenario(
        name="trip",
        context_window=32_000,
        sequence=(
            Reply(
                steps=(
                    Think("They want to travel, and there are notes."),
                    Say("Let me look at the notes."),
                    CallTools(files),
                ),
                chunk_chars=12,
            ),
            Reply(
                steps=(Say("Rome is the cheapest: 210 a night.\n"),),
                usage=Usage(900, 12, 600),
                chunk_chars=12,
            ),
        ),
        rules=(
            Reply(
                when=When(user_contains="weather"),
                steps=(
                    Fail("rate_limited", times=2, retry_after_s=0.5),
                    Say("Sunny, says the script."),
                ),
                chunk_chars=12,
            ),
            Reply(
                when=When(after_tool="read_file", last_tool_result_is_error=True),
                steps=(Say("One of the files is missing."),),
                chunk_chars=12,
            ),
            Reply(
                when=When(user_contains="story"),
                steps=(
                    Say("Once upon a time "),
                    Wait(0.5),
                    Say("there was a log."),
                    Cut(times=1),
                    Say(" It lasted."),
                ),
                chunk_chars=12,
                chunk_delay_s=0.04,
            ),
        ),
    )


def test_every_step_and_key_is_parsed() -> None:
    scenario = read_scenario(
        """
        sequence:
          - delay_ms: 1500
            stop_reason: length
            usage: none
            steps:
              - calls: [{name: t, json: '{"x": ', id: c1}, {name: u}]
              - error: {code: model_refused, reason: why, status: 403, times: 1}
              - hang: {times: 2}
              - hang
              - cut
        """,
        name="mine",
    )
    assert scenario.name == "mine"
    assert scenario.sequence == (
        Reply(
            steps=(
                Wait(1.5),
                CallTools((ScriptedCall("t", '{"x": ', "c1"), ScriptedCall("u"))),
                Fail("model_refused", "why", 1, None, 403),
                Hang(2),
                Hang(),
                Cut(),
            ),
            stop_reason="length",
            reports_usage=False,
        ),
    )


def test_default_scenario_name_comes_from_file_name(tmp_path: Path) -> None:
    path = tmp_path / "greeting.scenario.yaml"
    path.write_text("sequence: [{text: Hi}]", encoding="utf-8")
    assert load_scenario(path).name == "greeting"


@pytest.mark.parametrize(
    ("file", "name"), [(".sc.yaml", "sc"), ("trip.de.yaml", "trip"), ("..trip.yml", "trip")]
)
def test_scenario_name_is_file_name_without_suffix(tmp_path: Path, file: str, name: str) -> None:
    (tmp_path / file).write_text("sequence: [{text: a}]\n")
    assert load_scenario(tmp_path / file).name == name


def test_scenario_without_name_is_rejected_with_remedy() -> None:
    with pytest.raises(ConfigError, match="write `name: NAME`"):
        read_scenario("name: ''\nsequence: [{text: a}]\n", name="x")


def test_unreadable_file_is_config_error(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.yaml", "binary.yaml"):
        with pytest.raises(ConfigError, match=f"{name}.*cannot be read"):
            load_scenario(tmp_path / name)


def test_all_faults_of_a_scenario_are_reported_with_lines() -> None:
    text = """\
name: 5
sequnce: []
sequence:
  - txt: Hello
  - text: [1]
    calls:
      - {args: 5, id: 3}
      - {name: t, args: {}, json: "{}"}
    usage: many
  - steps: [{text: a, thinking: b}, stop, {error: {code: nope, times: 0}}, {cut: {}}]
  - when: {}
    text: x
    steps: []
  - {}
rules:
  - {when: {after: me, nth: 0, foo: 1, asks_summary: yes}, text: x}
  - 5
"""
    with pytest.raises(ConfigError) as raised:
        read_scenario(text, name="faulty")
    message = str(raised.value)
    assert message.startswith("the scenario 'faulty' cannot be used: line 1: expected text")
    lines = [int(number) for number in re.findall(r"line (\d+):", message)]
    assert lines == sorted(lines)
    assert set(lines) == {1, 2, 4, 5, 7, 8, 9, 10, 11, 13, 14, 16, 17}
    for part in ("'sequnce' is unknown", "'name' is missing", "'nope' is not one of", "one only"):
        assert part in message


@pytest.mark.parametrize("text", ["{}", "name: x", "model: {context_window: 5}"])
def test_scenario_without_replies_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="neither 'sequence' nor 'rules'"):
        read_scenario(text, name="x")
