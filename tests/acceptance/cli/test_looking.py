"""Commands that only read: their output, as text and in the promised JSON shapes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.acceptance.cli.conftest import PERDURE, SAMPLE_ID, World

LIST_KEYS = {
    "id",
    "title",
    "cwd",
    "created_at",
    "updated_at",
    "messages",
    "entries",
    "parent",
    "status",
    "subject",
    "metadata",
    "source",
    "agent",
    "model",
    "state",
}


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    stack = list(tree["roots"])
    while stack:
        node = stack.pop()
        yield node
        stack += node["children"]


def test_sessions_list_has_a_row_for_each_session(imported: World) -> None:
    (row,) = imported.ok("sessions", "list", "--json").json
    assert set(row) == LIST_KEYS
    assert (row["id"], row["title"]) == (SAMPLE_ID, "The tide table that lost an hour")
    assert (row["messages"], row["parent"], row["status"]) == (35, None, "active")
    assert row["cwd"] == "/home/mira/tidepool"
    for name in ("created_at", "updated_at"):
        assert datetime.fromisoformat(row[name]).utcoffset() is not None
        assert row[name].endswith("Z")
    text = imported.ok("sessions", "list").out
    assert SAMPLE_ID[:8] in text
    assert "The tide table that lost an hour" in text


def test_sessions_list_can_be_limited_and_searched(imported: World) -> None:
    assert len(imported.ok("sessions", "list", "--query", "TIDE", "--json").json) == 1
    assert imported.ok("sessions", "list", "--query", "nothing", "--json").json == []
    assert len(imported.ok("sessions", "list", "--limit", "0", "--json").json) == 1
    assert imported.ok("sessions", "list", "--cwd", str(imported.folder), "--json").json == []
    assert imported.run("sessions", "list", "--cwd", "/elsewhere").code == 3
    assert len(imported.ok("sessions", "list", "--cwd", "/home/mira/tidepool", "--json").json) == 1


def test_sessions_list_can_be_filtered_by_program_agent_model_and_time(imported: World) -> None:
    def found(*options: str) -> int:
        return len(imported.ok("sessions", "list", "--json", *options).json)

    (row,) = imported.ok("sessions", "list", "--json").json
    day = row["updated_at"][:10]
    assert found("--source", row["source"]) == 1
    assert found("--source", "codex") == 0
    assert found("--model", row["model"].partition(":")[2].upper()) == 1
    assert found("--model", "nothing") == 0
    assert found("--agent", "nobody") == 0
    assert found("--since", "2001-01-01") == found("--until", "today") == 1
    assert found("--since", "1d") == found("--until", "2001-01-01") == 0
    assert found("--since", day, "--limit", "0") == 1
    assert found("--interrupted") == 0
    ended = imported.run("sessions", "list", "--since", "some day")
    assert ended.code == 2
    assert "yesterday, 7d" in ended.err


def test_hide_ended_option_omits_ended_sessions_from_the_list(
    sample: World,
) -> None:
    def listed(*options: str) -> list[str]:
        rows = sample.ok("sessions", "list", "--json", "--hide-ended", *options).json
        return [row["title"] for row in rows]

    for said in ("one", "two", "three"):
        sample.ok("chat", "-m", "scripted:echo", "-p", said)
    ids = {row["title"]: row["id"] for row in sample.ok("sessions", "list", "--json").json}
    sample.ok("sessions", "end", ids["three"])
    sample.ok("sessions", "end", ids["one"])
    assert listed("--source", "perdure") == ["two"]
    assert listed("--limit", "1") == ["two"]
    assert "ended: one" in sample.ok("sessions", "list").out
    assert "one" not in sample.ok("sessions", "list", "--hide-ended").out.split()
    sample.ok("chat", "--session", ids["one"], "-p", "again")
    assert listed("--source", "perdure") == ["one", "two"]


def test_option_source_perdure_selects_only_sessions_of_perdure(
    sample: World,
) -> None:
    sample.ok("chat", "-m", "scripted:echo", "-p", "hello from here")
    (row,) = sample.ok("sessions", "list", "--source", "perdure", "--json").json
    assert (row["source"], row["title"]) == (None, "hello from here")
    hits = sample.ok("sessions", "search", "hello", "--source", "perdure", "--json").json
    assert {hit["session"] for hit in hits} == {row["id"]}


def test_unknown_program_or_folder_in_a_filter_is_an_error(imported: World) -> None:
    for command in (("list",), ("search", "tide"), ("erase", "--dry-run")):
        wrong = imported.run("sessions", *command, "--source", "cladue")
        assert wrong.code == 2
        assert "no program 'cladue': use one of perdure, pi, claude-code" in wrong.err
        assert "did you mean claude-code?" in wrong.err
        assert imported.run("sessions", *command, "--source", "codex").code == 0
    gone = ("--cwd", "/home/mira/tidepool", "--since", "1d")
    assert "No session matches" in imported.ok("sessions", "list", *gone).out
    assert imported.run("sessions", "list", "--cwd", "/no/such/folder").code == 3


def with_sessions_of(world: World, *folders: str) -> None:
    for number, folder in enumerate(folders):
        said = {"role": "user", "content": f"number {number}"}
        record = {
            "type": "user",
            "uuid": f"u{number}",
            "sessionId": f"s{number}",
            "timestamp": "2026-01-01T00:00:00Z",
            "cwd": folder,
            "message": said,
        }
        file = world.folder / f"s{number}.jsonl"
        file.write_text(json.dumps(record) + "\n")
        world.ok("import", str(file))


def test_folder_filter_accepts_the_last_part_of_a_path(world: World) -> None:
    with_sessions_of(world, "/home/ann/pi-mono", "/home/ann/a/tmp", "/home/ann/b/tmp")
    (row,) = world.ok("sessions", "list", "--cwd", "pi-mono", "--json").json
    assert row["cwd"] == "/home/ann/pi-mono"
    assert world.ok("sessions", "list", "--query", "Pi-mono", "--json").json == [row]
    assert world.ok("sessions", "list", "--query", "number 0", "--json").json == [row]
    assert len(world.ok("sessions", "search", "number", "--cwd", "ann/pi-mono", "--json").json) == 1
    world.ok("export", "--cwd", "pi-mono", "-o", "pages")
    assert len(list((world.folder / "pages").glob("*.html"))) == 2
    erased = world.ok("sessions", "erase", "--cwd", "pi-mono", "--dry-run", "--json").json
    assert erased == [row["id"]]


def test_folders_with_the_same_name_are_distinguished(world: World) -> None:
    with_sessions_of(world, "/home/ann/a/tmp", "/home/ann/b/tmp")
    shown = world.ok("sessions", "list").out
    assert " a/tmp " in shown
    assert " b/tmp " in shown
    for command in (("list",), ("search", "number"), ("erase", "--dry-run")):
        several = world.run("sessions", *command, "--cwd", "tmp")
        assert several.code == 2
        assert several.err == (
            "perdure: --cwd tmp: 2 folders end so, name one of them: "
            "/home/ann/a/tmp, /home/ann/b/tmp\n"
        )
    (row,) = world.ok("sessions", "list", "--cwd", "b/tmp", "--json").json
    assert row["cwd"] == "/home/ann/b/tmp"
    (world.folder / "tmp").mkdir()
    assert world.ok("sessions", "list", "--cwd", "tmp", "--json").json == []  # the real path


def test_search_accepts_words_without_quotes(imported: World) -> None:
    whole = imported.ok("sessions", "search", "tide table", "--json").json
    assert imported.ok("sessions", "search", "tide", "table", "--json").json == whole


def test_fork_is_compared_with_its_origin(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--at", "5", "--json").json["session"]
    found = sample.ok("sessions", "diff", SAMPLE_ID, fork, "--json").json
    assert found["shared"] > 0
    assert found["branches"][0]["entries"] == []
    assert found["branches"][1]["entries"]
    inside = sample.ok("sessions", "diff", fork, f"{SAMPLE_ID}/12", "--json").json
    assert inside["parting"] == found["parting"]
    assert sample.run("sessions", "diff", fork, "nothing").code == 3


def test_erasure_dry_run_says_that_sessions_with_forks_stay(sample: World) -> None:
    fork = sample.ok("sessions", "fork", SAMPLE_ID, "--at", "5", "--json").json["session"]
    wanted = ("sessions", "erase", "--source", "pi")
    shown = sample.ok(*wanted, "--dry-run").out
    advice = "add --keep-for-forks or --with-forks"
    assert f"not erased: {SAMPLE_ID} has forks ({fork}): {advice}" in shown
    assert sample.ok(*wanted, "--dry-run", "--json").json == []
    assert advice not in sample.ok(*wanted, "--keep-for-forks", "--dry-run").out
    assert f"{SAMPLE_ID}: not erased" in sample.run(*wanted, "--yes").err


def test_sessions_list_page_begins_after_the_given_session(world: World) -> None:
    for text in ("one", "two", "three"):
        world.ok("chat", "-p", text)
    page = world.ok("sessions", "list", "--limit", "2")
    rest = world.ok("sessions", "list", "--after", page.err.split()[-1])
    assert [line.split()[-1] for line in page.out.splitlines()] == ["TITLE", "three", "two"]
    assert [line.split()[-1] for line in rest.out.splitlines()] == ["TITLE", "one"]
    assert rest.err == ""
    ids = [line.split()[0] for line in page.out.splitlines()[1:]]
    for id in ids:  # made within a second, so their ids begin alike
        assert world.ok("sessions", "show", id, "--json").json["id"].startswith(id)
    assert world.run("sessions", "list", "--after", "nothing").code == 3


def test_show_command_prints_the_data_and_the_branch_of_a_session(imported: World) -> None:
    data = imported.ok("sessions", "show", SAMPLE_ID, "--json").json
    assert set(data) > LIST_KEYS
    assert data["usage"]["total_tokens"] > 0
    assert data["branch"][-1]["label"] == "ready to commit"
    assert data["leaf"] == data["branch"][-1]["id"]
    assert data["model"] == "anthropic:claude-haiku-4-5"
    text = imported.ok("sessions", "show", SAMPLE_ID).out
    assert text.startswith("The tide table that lost an hour\n")
    assert f"origin       import from {data['source']}\n" in text
    assert re.search(
        r"last active  .*, (\d+ (d|h|min) )?\d+ (h|min|s) after it was created\n", text
    )
    assert "forked" not in text


def test_shown_cost_of_long_session_equals_cost_in_usage(world: World) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 70}
    lines: list[str] = []
    for number in range(1_000):
        said = {"role": "user", "content": f"number {number}"}
        if number % 2:
            said = {
                "role": "assistant",
                "id": f"m{number}",
                "model": "claude-x",
                "content": [{"type": "text", "text": "yes"}],
                "usage": usage,
            }
        record = {
            "type": said["role"],
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "sessionId": "s",
            "timestamp": "2026-01-01T00:00:00Z",
            "message": said,
        }
        lines.append(json.dumps(record))
    (world.folder / "s.jsonl").write_text("\n".join(lines) + "\n")
    id = world.ok("import", "s.jsonl", "--json").json["session"]
    settings = world.folder / ".config" / "perdure" / "config.toml"
    settings.parent.mkdir(parents=True)
    price = "{input = 3, output = 15, cache_read = 0.3, cache_write = 3.75}"
    settings.write_text(f'[models.prices]\n"anthropic:claude-x" = {price}\n')
    (total,) = world.ok("usage", "sessions", "--json").json
    data = world.ok("sessions", "show", id, "--json").json
    assert total["cost_microcents"] == 500 * (10 * 300 + 5 * 1_500 + 70 * 30)
    assert data["usage"]["cost_microcents"] == total["cost_microcents"]
    assert data["unpriced_calls"] == 0
    shown = world.ok("usage", "sessions").out.split()[-1]
    text = world.ok("sessions", "show", id).out
    assert f"cost         {shown}\n" in text
    assert (
        "used         5,000 tokens in, 2,500 out, 35,000 cached, 0 written to the cache\n" in text
    )


def test_tree_shows_every_branch_every_label_and_every_compaction(imported: World) -> None:
    tree = imported.ok("sessions", "tree", SAMPLE_ID, "--json").json
    assert set(tree) == {"leaf", "roots"}
    found = list(nodes(tree))
    for node in found:
        assert (
            {"id", "kind", "children"} <= set(node) <= {"id", "kind", "role", "label", "children"}
        )
        assert ("role" in node) == (node["kind"] == "message")
    assert {node.get("label") for node in found} == {
        None,
        "two ways out",
        "fixed",
        "ready to commit",
    }
    kinds = [node["kind"] for node in found]
    assert kinds.count("compaction") == 1
    assert kinds.count("branch_summary") == 1
    assert tree["leaf"] in {node["id"] for node in found}
    assert [len(node["children"]) for node in found if node.get("label") == "two ways out"] == [2]


def test_tree_is_drawn_as_text(imported: World) -> None:
    text = imported.ok("sessions", "tree", SAMPLE_ID).out
    assert "├─● user       Quick one first please" in text
    assert "[two ways out]" in text
    assert text.rstrip().endswith("[ready to commit]  ◀ here")
    folded = imported.ok("sessions", "tree", SAMPLE_ID, "--limit", "20").out
    assert "more:" in folded
    assert len(folded.splitlines()) <= 20
    assert imported.ok("sessions", "tree", SAMPLE_ID, "--all").out == text
    flat = imported.ok("sessions", "tree", SAMPLE_ID, "--depth", "0").out
    assert "5 more: 3 assistant, 2 tool" in flat


def test_context_shows_the_messages_a_model_would_receive(imported: World) -> None:
    context = imported.ok("sessions", "context", SAMPLE_ID, "--json").json
    assert set(context) == {"model", "thinking_level", "tokens", "messages", "dropped", "last_turn"}
    assert (context["model"], context["thinking_level"]) == ("anthropic:claude-haiku-4-5", "off")
    for message in context["messages"]:
        assert set(message) == {"role", "parts", "entry_id"}
        assert message["role"] in ("user", "assistant", "tool")
        assert all("type" in part for part in message["parts"])
    assert context["messages"][0]["role"] == "user"
    said = json.dumps(context["messages"], ensure_ascii=False)
    assert "Find why the tide table of 29 March 2026 was an hour off" in said
    assert "Quick one first please" not in said
    text = imported.ok("sessions", "context", SAMPLE_ID).out
    assert "The summary of compaction" in text
    assert "🐌" in text


def test_context_over_budget_omits_oldest_messages_and_reports_their_number(
    imported: World,
) -> None:
    whole = imported.ok("sessions", "context", SAMPLE_ID, "--json").json
    small = imported.ok("sessions", "context", SAMPLE_ID, "--budget", "1200", "--json").json
    assert small["dropped"] > 0
    assert small["tokens"] < whole["tokens"]
    assert small["messages"][-1] == whole["messages"][-1]
    assert (
        "left out, oldest first"
        in imported.ok("sessions", "context", SAMPLE_ID, "--budget", "1200").out
    )


def test_store_info_describes_the_store(imported: World) -> None:
    info = imported.ok("store", "info", "--json").json
    assert {"address", "streams", "entries", "size_bytes", "is_encrypted", "durability"} <= set(
        info
    )
    assert info["streams"] == 1
    assert "plain: anyone who can read" in imported.ok("store", "info").out


def test_verify_of_an_undamaged_store_finds_no_problem(imported: World) -> None:
    found = imported.ok("store", "verify", "--json").json
    assert set(found) == {"ok", "streams", "entries", "erased", "cut_off", "problems"}
    assert (found["ok"], found["problems"]) == (True, [])
    assert imported.ok("store", "verify").out.startswith("ok")


def test_doctor_reports_problems_and_remedies(imported: World) -> None:
    checks = imported.ok("doctor", "--json").json
    assert checks["ok"] is True
    by_name = {check["name"]: check for check in checks["checks"]}
    assert {"python", "sqlite", "store", "privacy", "content", "encryption", "disk"} <= set(by_name)
    assert by_name["encryption"]["status"] == "warn"
    assert by_name["privacy"]["detail"] == "only you can use the file (mode 600)"
    text = imported.ok("doctor").out
    assert re.search(r"^ok    content      \d+ entries in 1 log", text, re.MULTILINE)


def test_empty_inbox_lists_no_questions(imported: World) -> None:
    assert imported.ok("inbox", "--json").json == []
    assert imported.ok("inbox", "list", "--json").json == []
    assert imported.ok("inbox").out == "Nothing waits for you.\n"


def test_show_tree_and_context_commands_do_not_change_a_session(sample: World) -> None:
    before = sample.ok("sessions", "list", "--json").out
    for command in ("show", "tree", "context"):
        sample.ok("sessions", command, SAMPLE_ID)
    assert sample.ok("sessions", "list", "--json").out == before


READING = (
    "sessions list",
    "sessions search hotel",
    "sessions show x",
    "sessions resume --all",
    "memory search hotel",
    "memory facts",
    "memory episodes",
    "inbox",
    "inbox list",
    "usage",
    "activity",
    "edits",
    "flow list",
    "token list",
    "store info",
    "store verify",
)
"""Commands that read a store."""


def test_reading_without_a_store_does_not_create_a_store(world: World) -> None:
    for words in READING:
        ended = world.run(*words.split(), "--json")
        assert (ended.code, ended.error["code"], ended.out) == (3, "store_not_found", ""), words
    told = f"perdure: there is no store sqlite:///{world.file} yet; `perdure import` or"
    assert world.run("sessions", "list").err.startswith(told)
    assert world.ok("doctor", "--json").json["ok"] is True
    assert list(world.folder.iterdir()) == []


def test_default_store_is_in_the_users_data_folder(world: World) -> None:
    home = World(world.folder, {"PERDURE_STORE": None, "XDG_DATA_HOME": str(world.folder / "data")})
    assert home.run("sessions", "list", "--json").error["code"] == "store_not_found"
    home.ok("chat", "-p", "hello")
    folder = world.folder / "data" / "perdure"
    assert (folder / "perdure.db").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(home.ok("sessions", "list", "--json").json) == 1


def test_sessions_of_another_namespace_are_not_listed(sample: World) -> None:
    assert sample.ok("sessions", "list", "--namespace", "other", "--json").json == []
    assert sample.run("sessions", "show", SAMPLE_ID, "--namespace", "other").code == 3


def test_unique_id_prefixes_are_accepted(sample: World) -> None:
    assert sample.ok("sessions", "show", SAMPLE_ID[:6], "--json").json["id"] == SAMPLE_ID
    sample.ok("sessions", "fork", SAMPLE_ID)
    sample.ok("sessions", "fork", SAMPLE_ID)
    ended = sample.run("sessions", "show", "0", "--json")
    assert ended.code == 2
    assert ended.error["code"] == "ambiguous_id"
    assert len(ended.error["candidates"]) == 3


@pytest.mark.all_only
def test_tree_of_ten_thousand_entries_is_drawn_and_written(world: World) -> None:
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": "long", "timestamp": "2026-01-01T00:00:00Z"}
    ]
    above: str | None = None
    for number in range(10_000):
        entry = {
            "type": "message",
            "id": f"{number:08x}",
            "parentId": above,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "message": {"role": "user", "content": f"message {number}"},
        }
        lines.append(entry)
        above = f"{number:08x}" if number % 100 else above
    file = world.folder / "long.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (report,) = world.ok("import", str(file), "--json").lines
    assert report["messages"] == 10_000
    assert len(world.ok("sessions", "tree", report["session"]).out.splitlines()) <= 320
    assert len(world.ok("sessions", "tree", report["session"], "--all").out.splitlines()) == 10_000
    text = world.ok("sessions", "tree", report["session"], "--json").out
    assert text.count('"children":') == 10_000
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        assert sum(1 for _ in nodes(json.loads(text))) == 10_000
    finally:
        sys.setrecursionlimit(before)


def test_tool_calls_are_listed_with_result_and_as_json(imported: World) -> None:
    calls = imported.ok("sessions", "tools", SAMPLE_ID, "--json").json
    assert len(calls) > 3
    assert set(calls[0]) == {
        *("id", "name", "input", "output", "success", "error", "called_at", "duration_ms"),
        *("session", "entry_id", "outcome"),
    }
    assert calls[0]["called_at"].endswith("Z")
    assert calls == imported.ok("sessions", "tools", "--last", "0", "--json").json
    named = imported.ok("sessions", "tools", "--tool", calls[0]["name"], "--json").json
    assert named == [call for call in calls if call["name"] == calls[0]["name"]]
    failed = imported.ok("sessions", "tools", "--failed", "--json").json
    assert failed == [call for call in calls if call["success"] is False]
    lines = imported.ok("sessions", "tools", SAMPLE_ID[:12], "--last", "2").out.splitlines()
    assert lines[0].split() == ["CALLED", "AT", "TOOL", "RESULT", "MS", "INPUT", "OUTPUT"]
    assert len(lines) == 3
    of_all = imported.ok("sessions", "tools", "--last", "2").out.splitlines()
    assert [line.split()[0] for line in of_all] == ["SESSION", SAMPLE_ID[:8], SAMPLE_ID[:8]]
    assert imported.ok("sessions", "tools", "--tool", "none").out == "No tool calls found.\n"
    assert imported.run("sessions", "tools", "ghost").code == 3


def test_read_command_prints_whole_messages_of_the_branch(imported: World) -> None:
    out = imported.ok("sessions", "read", SAMPLE_ID).out
    context = imported.ok("sessions", "read", SAMPLE_ID, "--json").json
    texts = [
        part["text"]
        for entry in context
        for part in entry["body"].get("parts", ())
        if part["type"] == "text"
    ]
    assert texts
    assert all(text in out for text in texts)
    newest = imported.ok("sessions", "read", SAMPLE_ID, "--last", "1").out
    assert out.endswith(newest)
    assert len(newest) < len(out)


def test_read_command_prints_a_given_entry_of_any_branch(imported: World) -> None:
    tree = imported.ok("sessions", "tree", SAMPLE_ID, "--json").json
    for node in list(nodes(tree))[:20]:
        number = node["id"].rpartition("/")[2]
        (entry,) = imported.ok("sessions", "read", SAMPLE_ID, number, "--json").json
        assert entry["id"] == node["id"]
        assert imported.ok("sessions", "read", SAMPLE_ID, number).out.startswith(f"{number} ")
    assert imported.run("sessions", "read", SAMPLE_ID, "99999").code == 3


def test_read_command_with_context_prints_the_entries_around_an_entry(imported: World) -> None:
    branch = [
        each["id"].rpartition("/")[2]
        for each in imported.ok("sessions", "read", SAMPLE_ID, "--json").json
    ]
    for at in (0, 5, len(branch) - 1):
        words = ("sessions", "read", SAMPLE_ID, branch[at], "--context", "2", "--json")
        found = [each["id"].rpartition("/")[2] for each in imported.ok(*words).json]
        assert found == branch[max(at - 2, 0) : at + 3], at
    assert imported.run("sessions", "read", SAMPLE_ID, "--context", "2").code == 2


def test_read_command_shows_the_neighbours_of_an_entry_outside_the_branch(
    world: World,
) -> None:
    world.ok("chat", "-p", "one")
    id = world.ok("sessions", "list", "--json").json[0]["id"]
    branch = [each["id"] for each in world.ok("sessions", "read", id, "--json").json]
    side = f"{id}/{int(branch[-1].rpartition('/')[2]) - 1}"
    assert side not in branch
    found = world.ok("sessions", "read", id, side, "--context", "1", "--json").json
    assert [each["id"] for each in found] == [branch[-2], side, branch[-1]]


def test_read_command_with_a_role_prints_only_messages_of_that_role(imported: World) -> None:
    words = ("sessions", "read", SAMPLE_ID, "--role", "user", "--json")
    found = imported.ok(*words).json
    assert {each["body"]["role"] for each in found} == {"user"}
    assert imported.ok(*words, "--last", "1").json == found[-1:]
    assert imported.run("sessions", "read", SAMPLE_ID, "--role", "me").code == 2


def test_read_command_reports_that_no_message_has_the_given_role(
    world: World,
) -> None:
    world.ok("chat", "-p", "one")
    id = world.ok("sessions", "list", "--json").json[0]["id"]
    told = world.ok("sessions", "read", id, "--role", "tool").out
    assert told == "The current branch has no messages of the role tool.\n"


def test_read_command_in_a_terminal_uses_the_pager(imported: World) -> None:
    pager = imported.folder / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/paged: /' > paged.txt\n")
    pager.chmod(0o700)
    ours, theirs = pty.openpty()
    words = ("sessions", "read", SAMPLE_ID, "--last", "1")
    environment = {**imported.environment, "PAGER": str(pager), "NO_COLOR": "1", "TERM": "xterm"}
    try:
        subprocess.run(
            [PERDURE, *words], stdout=theirs, env=environment, cwd=imported.folder, check=True
        )
    finally:
        os.close(ours)
        os.close(theirs)
    paged = (imported.folder / "paged.txt").read_text().splitlines()
    plain = imported.ok(*words).out.splitlines()
    assert [line.removeprefix("paged: ") for line in paged] == plain
    assert all(line.startswith("paged: ") for line in paged)
