"""``perdure sessions search`` and ``perdure store reindex``, as processes."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.acceptance.cli.conftest import PERDURE, SAMPLE_ID, World

KEYS = {
    *("session", "entry_id", "role", "snippet", "score", "on_branch"),
    *("at", "about", "marks", "title", "cwd"),
}


def test_search_returns_the_documented_json(imported: World) -> None:
    hits = imported.ok("sessions", "search", "tide table", "--json").json

    assert hits
    for hit in hits:
        assert set(hit) == KEYS
        assert hit["session"] == SAMPLE_ID
        assert hit["marks"]
        for first, last in hit["marks"]:
            assert re.match("tide|table", hit["snippet"][first:last], re.IGNORECASE)
    assert [hit["score"] for hit in hits] == sorted((h["score"] for h in hits), reverse=True)
    assert {hit["on_branch"] for hit in hits} <= {True, False}


def test_unclosed_quotation_mark_is_reported(imported: World) -> None:
    ended = imported.ok("sessions", "search", '"tide table', "--json")
    assert ended.json == imported.ok("sessions", "search", "tide table", "--json").json
    assert "a quotation mark is not closed, so it is ignored" in ended.err
    assert imported.ok("sessions", "search", '"tide table"', "--json").err == ""


def test_hits_are_shown_with_the_matches_in_brackets(imported: World) -> None:
    out = imported.ok("sessions", "search", "tide", "--limit", "3").out

    assert out.count(f"perdure sessions read {SAMPLE_ID[:8]} ") <= 3
    assert re.search(r"\[[Tt]ide\]", out)
    assert "\x1b" not in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_search_without_hits_exits_with_success(imported: World) -> None:
    ended = imported.ok("sessions", "search", "zzyzx")
    assert (ended.out, ended.err) == ("", "Nothing found.\n")
    assert imported.ok("sessions", "search", "zzyzx", "--json").json == []


@pytest.mark.parametrize("typed", ["authentcation", "auhtentication", "login authenticaton"])
def test_search_that_finds_nothing_suggests_similar_words(world: World, typed: str) -> None:
    world.ok("chat", "-p", "The login needs Authentication, not authorization")
    ended = world.ok("sessions", "search", typed)
    assert ended.out == ""
    assert ended.err.startswith("Nothing found. Similar words: authentication")
    assert world.ok("sessions", "search", typed, "--role", "tool").err == "Nothing found.\n"
    assert world.ok("sessions", "search", typed, "--json").err == ""


def test_search_command_filters_reduce_the_hits(imported: World) -> None:
    def found(*options: str) -> int:
        return len(
            imported.ok("sessions", "search", "tide", "--json", "--limit", "500", *options).json
        )

    every = found()
    assert every > found("--role", "user") > 0
    assert found("--role", "user", "--role", "assistant") > found("--role", "user")
    assert found("--on-branch") + found("--off-branch") == every
    assert found("--session", SAMPLE_ID[:8]) == every
    assert found("--since", "2001-01-01", "--until", "2100-01-01T12:00") == every
    assert found("--until", "2001-01-01") == 0
    assert found("--tool", "no_such_tool") == 0
    assert found("--cwd", "/home/mira/tidepool") == every
    assert found("--cwd", str(imported.folder)) == 0
    assert found("--cwd", str(imported.folder), "--session", SAMPLE_ID) == 0
    assert imported.run("sessions", "search", "tide", "--cwd", "/elsewhere").code == 3
    assert found("--since", "1d") == 0


def test_invalid_query_or_filter_is_reported(imported: World) -> None:
    ended = imported.run("sessions", "search", "NOT tide", "--json")
    assert (ended.code, ended.error["code"]) == (2, "invalid_query")
    assert ended.error["query"] == "NOT tide"
    assert imported.run("sessions", "search", "").code == 2
    assert imported.run("sessions", "search", "tide", "--role", "nobody").code == 2
    assert imported.run("sessions", "search", "tide", "--since", "some day").code == 2
    assert imported.run("sessions", "search", "tide", "--session", "zzyzx").code == 3


def test_index_is_rebuilt_on_request(sample: World) -> None:
    before = sample.ok("sessions", "search", "tide OR table", "--json").json

    told = sample.ok("store", "reindex", "--json").json

    assert told["texts"] >= len(before)
    assert "can be found" in sample.ok("store", "reindex").out
    assert sample.ok("sessions", "search", "tide OR table", "--json").json == before
    assert sample.ok("store", "verify", "--json").json["ok"]


def test_search_finds_new_text_of_another_process(sample: World) -> None:
    sample.ok("sessions", "rename", SAMPLE_ID, "A wholly unheard name")

    (hit,) = sample.ok("sessions", "search", '"wholly unheard"', "--json").json

    assert (hit["role"], hit["on_branch"]) == ("title", True)


@pytest.mark.all_only
def test_two_processes_can_index_concurrently(sample: World) -> None:
    command = [str(PERDURE), "sessions", "search", "tide", "--json", "--limit", "500"]
    started = [
        subprocess.Popen(command, env=sample.environment, stdout=subprocess.PIPE) for _ in range(3)
    ]
    outs = [process.communicate(timeout=60)[0] for process in started]

    assert [process.returncode for process in started] == [0, 0, 0]
    assert outs[0] == outs[1] == outs[2] != b"[]\n"
    assert sample.ok("store", "verify", "--json").json["ok"]


def test_search_accepts_the_earliest_and_the_latest_possible_date(sample: World) -> None:
    everything = sample.ok("sessions", "search", "tide", "--since", "0001-01-01", "--json").json
    assert (
        everything
        == sample.ok("sessions", "search", "tide", "--until", "9999-12-31", "--json").json
    )
    assert everything
    assert sample.ok("sessions", "search", "tide", "--until", "0001-01-01", "--json").json == []


def test_command_printed_for_a_search_hit_prints_the_entry(imported: World) -> None:
    command = imported.ok("sessions", "search", "tide", "--limit", "1").out.splitlines()[-1]
    words = command.split()
    assert words[:3] == ["perdure", "sessions", "read"]
    assert "tide" in imported.ok(*words[1:]).out.lower()


def test_search_with_a_source_program_finds_only_imports_of_that_program(imported: World) -> None:
    def found(source: str) -> int:
        return len(imported.ok("sessions", "search", "tide", "--json", "--source", source).json)

    source = imported.ok("sessions", "list", "--json").json[0]["source"]
    assert found(source) > found("codex") == 0


def test_search_does_not_find_a_removed_label(sample: World) -> None:
    quoted = ("sessions", "search", '"dog answer"', "--json")
    number = sample.ok("sessions", "read", SAMPLE_ID, "--json").json[0]["id"].rpartition("/")[2]

    sample.ok("sessions", "label", SAMPLE_ID, number, "dog answer")
    assert [hit["role"] for hit in sample.ok(*quoted).json] == ["label"]
    sample.ok("sessions", "label", SAMPLE_ID, number)

    assert sample.ok(*quoted).json == []


def test_session_not_found_error_mentions_the_default_namespace(
    imported: World,
) -> None:
    there = World(imported.folder, {"PERDURE_NAMESPACE": "shop"})
    for named in (SAMPLE_ID, SAMPLE_ID[:8]):
        ended = there.run("sessions", "show", named)
        assert ended.code == 3
        assert ended.err == (
            f"perdure: no session '{named}' in the namespace shop; it is in the namespace default: "
            "add `--namespace default`\n"
        )
        there.ok("sessions", "show", named, "--namespace", "default")
    assert "perdure sessions list --all" in there.run("sessions", "show", "zzyzx").err
    assert there.ok("sessions", "search", "tide").err == (
        "Nothing found in the namespace shop; the namespace default has sessions, too: "
        "add `--namespace default`.\n"
    )


def listed(world: World, *options: str) -> list[str]:
    hits = world.ok("sessions", "search", "--json", *options).json
    assert [set(hit) for hit in hits] == [KEYS] * len(hits)
    return [hit["snippet"] for hit in hits]


def test_search_without_words_lists_user_prompts_newest_first(world: World) -> None:
    """Earlier, no list contained all prompts of the user, and forks repeated prompts."""
    world.ok("chat", "-p", "first prompt")
    world.ok("chat", "-p", "second prompt")
    newest, oldest = (each["id"] for each in world.ok("sessions", "list", "--json").json)
    world.ok("sessions", "fork", newest)
    world.ok("chat", "--session", oldest, "-p", "third prompt")
    assert listed(world, "--role", "user") == ["third prompt", "second prompt", "first prompt"]
    assert listed(world, "--role", "user", "--limit", "1") == ["third prompt"]
    assert listed(world, "--role", "user", "--session", newest) == ["second prompt"]
    assert listed(world, "--role", "user", "--until", "2020-01-01") == []
    assert listed(world, "--role", "user", "--cwd", ".", "--since", "7d")[0] == "third prompt"
    assert len(listed(world, "--since", "1h")) == 6
    shown = world.ok("sessions", "search", "--role", "user").out
    assert shown.index("third prompt") < shown.index("second prompt")
    assert f"perdure sessions read {newest[:4]}" in shown
    for words in ((), ("--limit", "3"), ("--json",)):
        ended = world.run("sessions", "search", *words)
        assert ended.code == 2
        assert "missing argument QUERY" in ended.err


def test_search_without_words_keeps_equal_messages_of_one_session(world: World) -> None:
    records = [
        {
            "type": "user",
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": "twice",
            "timestamp": "2026-01-01T10:00:00.000Z",
            "message": {"role": "user", "content": "go on"},
        }
        for uuid, parent in (("u1", None), ("u2", "u1"))
    ]
    lines = [json.dumps(each) for each in records]
    (world.folder / "twice.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    world.ok("import", "twice.jsonl")

    assert listed(world, "--role", "user") == ["go on", "go on"]


def test_search_without_words_can_filter_by_branch_tool_and_role(imported: World) -> None:
    everything = listed(imported, "--session", SAMPLE_ID, "--limit", "500")
    on_branch = listed(imported, "--on-branch", "--limit", "500")
    off_branch = listed(imported, "--off-branch", "--limit", "500")
    assert len(everything) == len(on_branch) + len(off_branch) > len(on_branch) > 0
    assert 0 < len(listed(imported, "--tool", "read", "--limit", "500")) < len(everything)
    assert len(listed(imported, "--role", "summary")) > 0


def test_empty_session_list_mentions_sessions_in_the_default_namespace(
    imported: World,
) -> None:
    there = World(imported.folder, {"PERDURE_NAMESPACE": "shop"})

    empty = there.ok("sessions", "list").out

    assert "No sessions in the namespace shop yet." in empty
    assert "The namespace default has " in empty
    assert "add `--namespace default` to list them" in empty
    assert "`--namespace default`" in there.ok("sessions", "list", "--query", "zyzzyva").out
    assert there.ok("sessions", "list", "--json").json == []
    there.ok("chat", "-p", "tea")
    assert "namespace default" not in there.ok("sessions", "list").out
    third = World(imported.folder, {"PERDURE_NAMESPACE": "third"})
    assert "shop" not in third.ok("sessions", "list").out  # perhaps another tenant's
