"""``perdure usage``, ``activity`` and ``edits`` over imported sessions."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.client.clock import SystemClock
from perdure.session.clock import moment_of
from tests.acceptance.cli.conftest import PERDURE, SAMPLE_ID, World


def test_imported_sessions_get_prices_from_the_public_price_list(imported: World) -> None:
    rows = imported.ok("usage", "models", "--json").json
    row = next(each for each in rows if each["key"].startswith("anthropic:"))
    assert row["unpriced_calls"] == 0
    tokens = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    assert sum(row[name] for name in tokens) == row["total_tokens"] > 0
    assert row["cost_microcents"] > 0
    text = imported.ok("usage", "models").out
    assert row["key"] in text
    assert f"{row['input_tokens']:,}" in text
    assert "$" in text


def test_usage_has_the_same_total_in_every_grouping(imported: World) -> None:
    sums = {
        sum(row["total_tokens"] for row in imported.ok("usage", by, "--json").json)
        for by in (
            "daily",
            "monthly",
            "models",
            "agents",
            "projects",
            "people",
            "programs",
            "sessions",
        )
    }
    assert len(sums) == 1
    (session,) = imported.ok("usage", "sessions", "--json").json
    assert session["key"] == SAMPLE_ID
    assert imported.ok("usage", "--since", "1d", "--json").json == []


def test_usage_of_sessions_prints_short_id_day_and_title(world: World) -> None:
    world.ok("chat", "-p", "hello")
    world.ok("chat", "-p", "goodbye")
    listed = {each["id"]: each for each in world.ok("sessions", "list", "--json").json}
    heading, *rows, total = world.ok("usage", "sessions").out.splitlines()[:4]
    assert heading.split()[:4] == ["SESSION", "LAST", "USED", "TITLE"]
    assert {(row.split()[0], row.split()[2]) for row in rows} == {
        (row.split()[0], title)
        for row, title in zip(
            world.ok("sessions", "list").out.splitlines()[1:], ("goodbye", "hello"), strict=True
        )
    }
    assert total.split()[0] == "total"
    one = world.ok("usage", "models", "--session", next(iter(listed)), "--json").json
    assert [(each["calls"], each["sessions"]) for each in one] == [(1, 1)]


def test_usage_and_activity_of_a_folder_come_from_its_sessions(imported: World) -> None:
    folder = imported.ok("sessions", "show", SAMPLE_ID, "--json").json["cwd"]
    (imported.folder / "bare").mkdir()
    for command in (("usage", "models"), ("usage", "--session", SAMPLE_ID), ("activity",)):
        found = imported.ok(*command, "--json").json
        assert found
        assert imported.ok(*command, "--cwd", folder, "--json").json == found
        assert imported.ok(*command, "--cwd", folder.rpartition("/")[2], "--json").json == found
        assert imported.ok(*command, "--cwd", "bare", "--json").json == []
        assert imported.run(*command, "--cwd", "missing").code == 3


def test_usage_by_month_counts_each_session_once(imported: World) -> None:
    days = imported.ok("usage", "--json").json
    months = imported.ok("usage", "monthly", "--json").json
    assert [each["key"] for each in months] == sorted({each["key"][:7] for each in days})
    assert [each["sessions"] for each in months] == [1] * len(months)
    since = imported.ok("usage", "monthly", "--since", months[-1]["key"], "--json").json
    assert since == months[-1:]


def test_usage_and_list_commands_show_perdure_as_the_program(
    world: World,
) -> None:
    world.ok("chat", "-p", "hello")
    heading, row = world.ok("usage", "programs").out.splitlines()[:2]
    assert (heading.split()[0], row.split()[0]) == ("PROGRAM", "perdure")
    assert "perdure" in world.ok("sessions", "list").out


def test_models_without_a_price_are_listed_until_settings_set_their_prices(world: World) -> None:
    world.ok("chat", "-p", "hello")
    text = world.ok("usage").out
    assert "no price for scripted:echo: 1 call" in text
    assert "?" in text
    settings = world.folder / ".config" / "perdure"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(
        '[models.prices]\n"scripted:echo" = {input = 1, output = 2}\n'
    )
    priced = world.ok("usage", "--json").json[0]
    assert priced["unpriced_calls"] == 0
    assert priced["cost_microcents"] > 0
    assert "no price" not in world.ok("usage").out


def test_usage_line_for_a_shell_prompt_covers_today(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    day_ms, now = 86_400_000, SystemClock().now_ms()
    to_noon = day_ms // 2 - now % day_ms  # the day cannot change between the commands
    real = SystemClock().now_ms

    def shifted(_: SystemClock) -> int:
        return real() + to_noon

    monkeypatch.setattr(SystemClock, "now_ms", shifted)
    world.ok("chat", "-p", "hello")
    assert world.ok("usage", "--line", "--until", "7d").out == "$0.00 0 tokens\n"
    assert re.fullmatch(r"[0-9.k]+ tokens, no price\n", world.ok("usage", "--line").out)
    assert "sessions" not in world.ok("usage", "--line", "--json").json
    (row,) = world.ok("usage", "--json").json
    assert row["key"] == moment_of(now + to_noon).date().isoformat()


def test_shell_prompt_in_the_guide_shows_usage_without_delay(world: World) -> None:
    world.ok("chat", "-p", "hello")
    guide = (Path(__file__).parents[3] / "docs/guides/command-line.md").read_text()
    (block,) = re.findall(r"```bash\n(perdure_line=.*?)```", guide, re.DOTALL)
    line = world.folder / ".cache" / "perdure" / "line"
    shown = f"""{block}
printf '<%s>\n' "${{PS1@P}}"
eval "$PROMPT_COMMAND"
while ! [ -e "{line}" ]; do sleep 0.05; done
printf '<%s>\n' "${{PS1@P}}"
"""
    told = world.ok("usage", "--line").out.strip()
    ended = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", shown],
        env={**world.environment, "PATH": f"{PERDURE.parent}:{os.environ['PATH']}"},
        cwd=world.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    before, after = ended.stdout.splitlines()
    assert before.startswith("< ")
    assert after.startswith(f"<{told} ")


def test_price_without_a_rate_for_cached_tokens_is_reported(world: World) -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 2_000,
        "cache_creation_input_tokens": 1_000,
    }
    record = {
        "type": "assistant",
        "uuid": "u",
        "sessionId": "s",
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {
            "role": "assistant",
            "id": "m",
            "model": "claude-x",
            "content": [{"type": "text", "text": "yes"}],
            "usage": usage,
        },
    }
    text = json.dumps(record) + "\n"
    for name in "xy":
        renamed = text.replace("claude-x", f"claude-{name}").replace('"s"', f'"s{name}"')
        (world.folder / f"s{name}.jsonl").write_text(renamed)
        world.ok("import", f"s{name}.jsonl")
    settings = world.folder / ".config" / "perdure"
    settings.mkdir(parents=True)
    price = '[models.prices."anthropic:*"]\ninput = 3\noutput = 15\n'
    (settings / "config.toml").write_text(price)
    text = world.ok("usage").out
    for name, tokens in (("cache_read", "2,000"), ("cache_write", "1,000")):
        for model in ("anthropic:claude-x", "anthropic:claude-y"):
            told = f"your price of {model} has no {name}: {tokens} tokens cost as much as other"
            assert text.count(told) == 1
    (settings / "config.toml").write_text(f"{price}cache_read = 0.3\ncache_write = 3.75\n")
    assert "has no cache" not in world.ok("usage").out


def test_recorded_cost_takes_precedence_over_a_configured_price(world: World) -> None:
    """Only the second answer, whose cost the file lacks, gets its price from the settings."""
    usage = {"input": 10, "output": 5, "cacheRead": 700, "cacheWrite": 0}
    cost = {"input": 0.1, "output": 0.1, "cacheRead": 0.1, "cacheWrite": 0, "total": 0.3}
    for name, used in (("first", {**usage, "cost": cost}), ("second", usage)):
        import_answer(world, name, used)
        settings = world.folder / ".config" / "perdure"
        settings.mkdir(parents=True, exist_ok=True)
        price = '[models.prices."anthropic:claude-x"]\ninput = 3\noutput = 15\n'
        (settings / "config.toml").write_text(price)
        text = world.ok("usage").out
        assert ("has no cache_read: 700 tokens cost" in text) == (name == "second")


def test_calls_without_tokens_need_no_price(world: World) -> None:
    used = "{input_tokens: 0, output_tokens: 0}"
    scenario = world.scenario(f"sequence:\n  - text: hi\n    usage: {used}\n")
    world.ok("chat", "-p", "hello", "--scenario", scenario)
    text = world.ok("usage", "models").out
    assert "no price" not in text
    assert "$0.00" in text


def import_answer(world: World, name: str, usage: Mapping[str, object]) -> None:
    """Import a session of pi with one answer that used `usage`."""
    at = "2026-01-01T00:00:00Z"
    lines = (
        {"type": "session", "version": 3, "id": name, "timestamp": at, "cwd": "/a"},
        {
            "type": "message",
            "id": "a",
            "parentId": None,
            "timestamp": at,
            "message": {
                "role": "assistant",
                "provider": "anthropic",
                "model": "claude-x",
                "content": [{"type": "text", "text": "yes"}],
                "usage": usage,
            },
        },
    )
    file = world.folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    world.ok("import", str(file))


def test_activity_command_has_equal_totals_by_day_and_by_hour(imported: World) -> None:
    days = imported.ok("activity", "--json").json
    hours = imported.ok("activity", "--hours", "--json").json
    for name in ("messages", "tool_calls", "tokens"):
        assert sum(day[name] for day in days) == sum(hour[name] for hour in hours) > 0
    text = imported.ok("activity").out
    assert days[0]["key"] in text
    assert "█" in text
    assert len(imported.ok("activity", "--hours", "--last", "1", "--json").json) == 1
    assert imported.ok("activity", "--until", "2001-01-01").out == "No activity found.\n"


def test_edits_command_lists_the_entry_that_changed_each_file(imported: World) -> None:
    found = imported.ok("edits", "--json").json
    assert found
    text = imported.ok("edits", "--last", "1").out
    assert found[0]["path"] in text
    session, number = text.splitlines()[-1].split()[-2:]
    (entry,) = imported.ok("sessions", "read", session, number, "--json").json
    assert entry["id"] == found[0]["entry_id"]
    assert imported.ok("edits", "--session", SAMPLE_ID, "--json").json == found
    assert imported.run("edits", "--session", "nowhere").code == 3


def test_edits_command_prints_whole_paths_if_its_output_is_a_pipe(world: World) -> None:
    """The output of an earlier version did not distinguish two files in one deep folder."""
    (world.folder / "packages/coding-agent/src/modes/theme").mkdir(parents=True)
    for name in ("dark.json", "theme.ts"):
        path = f"packages/coding-agent/src/modes/theme/{name}"
        write = f"/tool write_file {json.dumps({'path': path, 'content': 'x'})}"
        world.ok("chat", "--continue", "-p", write, "--approve", "accept-edits")
    shown = world.ok("edits").out
    for found in world.ok("edits", "--json").json:
        assert f" {found['path']} " in shown
        assert f" {found['cwd']} " in shown


def test_edits_command_can_be_limited_to_a_folder(
    imported: World,
) -> None:
    folder = imported.ok("sessions", "show", SAMPLE_ID, "--json").json["cwd"]
    found = imported.ok("edits", "--json").json
    assert imported.ok("edits", "--cwd", folder, "--json").json == found
    assert imported.ok("edits", "--cwd", folder.rpartition("/")[2], "--json").json == found
    (imported.folder / "empty").mkdir()
    assert imported.ok("edits", "--cwd", "empty").out == "No edits found.\n"
    assert imported.run("edits", "--cwd", "missing").code == 3


def test_edits_command_sorts_files_by_their_number_of_edits(world: World) -> None:
    """The file with the most changes is not the one that was changed last."""
    lines: list[str] = []
    for number, path in enumerate(
        ["/a/most", "/a/most", "/a/most", "/a/some", "/a/some", "/a/one"]
    ):
        time = f"2026-01-01T00:00:0{number}Z"
        call = {
            "type": "tool_use",
            "id": f"c{number}",
            "name": "Edit",
            "input": {"file_path": path, "old_string": "a", "new_string": "b"},
        }
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "done"}
        parent = f"r{number - 1}" if number else None
        for id, role, content in (
            (f"u{number}", "assistant", call),
            (f"r{number}", "user", result),
        ):
            record = {
                "type": role,
                "uuid": id,
                "parentUuid": parent,
                "sessionId": "s",
                "timestamp": time,
                "message": {"role": role, "id": id, "model": "claude-x", "content": [content]},
            }
            lines.append(json.dumps(record))
            parent = id
    (world.folder / "s.jsonl").write_text("\n".join(lines) + "\n")
    world.ok("import", "s.jsonl")

    def paths(*options: str) -> list[str]:
        return [each["path"] for each in world.ok("edits", "--json", *options).json]

    assert paths() == ["/a/one", "/a/some", "/a/most"]
    assert paths("--sort", "count") == ["/a/most", "/a/some", "/a/one"]
    assert paths("--sort", "count", "--last", "1") == ["/a/most"]


def test_activity_map_shows_one_row_per_weekday(
    sample: World,
) -> None:
    lines = sample.ok("activity", "--map").out.splitlines()
    assert [line[:3] for line in lines[1:8]] == ["Mon", "   ", "Wed", "   ", "Fri", "   ", "Sun"]
    assert "most on a day" in lines[8]
    counts = sample.ok("activity", "--map", "--json").json
    assert counts == sample.ok("activity", "--json").json
    ended = sample.run("activity", "--map", "--hours")
    assert (ended.code, "leave out --hours" in ended.err) == (2, True)
    ended = sample.run("activity", "--map", "--last", "60")
    assert (ended.code, "leave out --last" in ended.err) == (2, True)
