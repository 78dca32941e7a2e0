"""Tools in a chat: approved first, granted for the session, revoked, refused."""

from __future__ import annotations

import dataclasses
import getpass
import json
import re
from typing import Any

from tests.acceptance.cli.conftest import Ended, World


def says(world: World, text: str, *options: str) -> Ended:
    return world.run("chat", "-p", text, *options)


def write(path: str, content: str) -> str:
    return f"/tool write_file {json.dumps({'path': path, 'content': content})}"


def question(world: World) -> dict[str, Any]:
    (asked,) = world.ok("inbox", "list", "--json").json
    return asked


def session_of(world: World) -> str:
    return world.ok("sessions", "list", "--json").json[0]["id"]


def test_grant_of_a_file_change_applies_until_it_is_revoked(
    world: World,
) -> None:
    assert says(world, write("a.txt", "one")).code == 1
    assert not (world.folder / "a.txt").exists()
    asked = question(world)
    assert asked["topic"] == "approval"
    assert "a.txt" in asked["text"]
    assert asked["arguments"] == {"path": "a.txt", "content": "one"}
    listed = world.ok("inbox", "list").out.splitlines()
    assert f"  perdure inbox show {asked['id']}  prints it in full" in listed
    assert max(map(len, listed)) <= 80
    world.ok("inbox", "answer", asked["id"], "always")
    session = session_of(world)
    world.ok("chat", "--session", session, "-p", "thanks")
    assert (world.folder / "a.txt").read_text() == "one"

    known = world.ok("grants", "list", session, "--json").json
    assert [each["grant"] for each in known] == [asked["always"]]
    everywhere = [{"session": session, "grants": known}]
    assert world.ok("grants", "list", "--json").json == everywhere
    assert session[:8] in world.ok("grants", "list").out
    narrow = dataclasses.replace(world, extra={"COLUMNS": "60"})
    lines = narrow.ok("grants", "list").out.splitlines()
    assert [0 < len(line) <= 60 for line in lines] == [True, True]
    (world.folder / "a.txt").write_text("else")
    world.ok("chat", "--session", session, "-p", write("a.txt", "one"))
    assert (world.folder / "a.txt").read_text() == "one"
    assert world.run("chat", "--session", session, "-p", write("b.txt", "x")).code == 1
    world.ok("inbox", "answer", question(world)["id"], "deny")
    world.ok("chat", "--session", session, "-p", "never mind")
    assert not (world.folder / "b.txt").exists()

    world.ok("grants", "revoke", session, "write_file a.txt")
    assert world.ok("grants", "list", session, "--json").json == []
    assert world.run("chat", "--session", session, "-p", write("a.txt", "one")).code == 1


def test_approval_mode_decides_whether_an_edit_is_applied(world: World) -> None:
    says(world, write("a.txt", "one"), "--approve", "accept-edits")
    assert (world.folder / "a.txt").read_text() == "one"
    refused = says(world, write("b.txt", "x"), "--approve", "plan")
    assert refused.code == 0
    assert "in this mode" in refused.out
    assert not (world.folder / "b.txt").exists()


def test_allow_command_option_allows_only_commands_that_match_its_pattern(world: World) -> None:
    call = '/tool run_command {"command": "echo hello"}'
    done = says(world, call, "--approve", "auto", "--allow-command", "echo *")
    assert "hello" in done.out
    other = '/tool run_command {"command": "ls"}'
    refused = says(world, other, "--approve", "auto", "--allow-command", "echo *")
    assert "not one of those that are allowed" in refused.out


def echoed(world: World, *options: str) -> str:
    call = '/tool run_command {"command": "echo hello"}'
    return world.run("chat", "--continue", "-p", call, *options).out


def test_resumed_session_keeps_its_tools_and_permissions(world: World) -> None:
    says(world, "hello", "--approve", "auto", "--allow-command", "echo *")
    assert "[exit code 0]" in echoed(world)
    assert "There is no tool" not in echoed(world, "--scope", "sandboxed")
    assert "nothing is changed, run or sent" in echoed(world, "--approve", "plan")
    assert "[exit code 0]" in echoed(world)


def test_resume_with_a_permission_option_grants_and_records_permissions(world: World) -> None:
    says(world, "hello")
    assert "There is no tool 'run_command'" in echoed(world)
    assert "[exit code 0]" in echoed(world, "--allow-command", "echo *", "--approve", "auto")
    assert "[exit code 0]" in echoed(world)
    session = session_of(world)
    bound = [
        line["body"]
        for line in map(json.loads, world.ok("export", session).out.splitlines())
        if line.get("kind") == "agent_bound"
    ]
    assert [body["granted_by"] for body in bound] == [getpass.getuser()]
    assert bound[0]["agent"]["permissions"]["allowed_command_globs"] == ["echo *"]


def test_allow_command_option_rejects_a_command_that_needs_a_shell(world: World) -> None:
    assert says(world, "x", "--allow-command", "ls | wc").code == 2


def test_revoking_a_grant_that_does_not_exist_is_refused(world: World) -> None:
    says(world, "hello")
    assert world.run("grants", "revoke", session_of(world), "write_file x").code == 3
    assert world.run("grants", "revoke", session_of(world)).code == 2
    assert "every call needs approval" in world.ok("grants", "list", session_of(world)).out


def test_piped_text_with_a_prompt_does_not_answer_an_approval(world: World) -> None:
    scenario = world.scenario(
        "rules:\n"
        "  - when: {after_tool: write_file}\n    text: Done.\n"
        "  - calls: [{name: write_file, args: {path: a.txt, content: new}}]\n"
    )
    ended = world.run("chat", "--scenario", scenario, "-p", "go", stdin="allow\nallow\n")
    assert ended.code == 1
    assert not (world.folder / "a.txt").exists()
    assert len(world.ok("inbox", "list", "--json").lines) == 1


def test_chat_shows_the_whole_call_before_it_asks_for_approval(world: World) -> None:
    (world.folder / "a.txt").write_text("old\n")
    content = "\n".join(f"line {n}" for n in range(300))
    talked = world.run("chat", stdin=f"{write('a.txt', content)}\nmaybe\nshow\nallow\n")
    said = talked.out + talked.err
    assert "path = a.txt" in said
    assert f"file: {world.folder / 'a.txt'}" in said
    assert "before: 4 bytes, blake2b-256 " in said
    assert "always: allow in this session without asking: write_file a.txt: " in said
    assert "answer allow, always, deny, or show to see all of it" in said
    assert said.count("| +line 299") == 1
    assert (world.folder / "a.txt").read_text() == content


def test_chat_explains_how_to_allow_edits_without_a_question(world: World) -> None:
    (world.folder / "a.txt").write_text("old\n")
    edit = '/tool edit_file {"path": "a.txt", "old_text": "old", "new_text": "new"}'
    talked = world.run("chat", stdin=f"{edit}\nalways\nallow\n")
    said = " ".join((talked.out + talked.err).split())
    assert "/approve accept-edits, after this turn, allows edits without a question" in said
    assert "always is not offered: edits, commits" in said
    assert (world.folder / "a.txt").read_text() == "new\n"


def test_grant_is_selected_by_a_unique_prefix(world: World) -> None:
    says(world, write("a.txt", "one"))
    world.ok("inbox", "answer", question(world)["id"], "always")
    session = session_of(world)
    world.ok("chat", "--session", session, "-p", "thanks")
    world.run("chat", "--session", session, "-p", write("a.txt", "two"))
    world.ok("inbox", "answer", question(world)["id"], "always")
    world.ok("chat", "--session", session, "-p", "thanks")
    assert "ambiguous" in world.run("grants", "revoke", session, "write_file a.txt").err
    assert world.run("grants", "revoke", session, "write_file b").code == 3
    grants = world.ok("grants", "list", session, "--json").json
    assert len(grants) == 2
    first, second = (
        line.split(maxsplit=1) for line in world.ok("grants", "list", session).out.splitlines()
    )
    assert [first, second] == [[each["id"], each["grant"]] for each in grants]
    assert first[0] in world.ok("grants", "list").out
    offered = world.ok("__complete", "fish", "grants", "revoke", session, "").out
    found = {line.partition("\t")[0] for line in offered.splitlines()[1:]}
    assert found == {first[0], second[0]}
    told = world.ok("grants", "revoke", session, first[0][:6]).out
    assert re.fullmatch(r"Revoked: write_file a\.txt: 3 bytes, blake2b-256 \w{8}…, .*\n", told)
    assert world.ok("grants", "list", session, "--json").json == grants[1:]


def test_revoking_a_grant_of_two_sessions_requires_a_session_id(
    world: World,
) -> None:
    sessions: list[str] = []
    for _ in range(2):
        says(world, write("a.txt", "one"))
        world.ok("inbox", "answer", question(world)["id"], "always")
        sessions.append(world.ok("sessions", "list", "--json").json[0]["id"])
        world.ok("chat", "--session", sessions[-1], "-p", "thanks")
        (world.folder / "a.txt").unlink()
    (grant,) = world.ok("grants", "list", sessions[0], "--json").json
    refused = world.run("grants", "revoke", grant["id"])
    assert refused.code == 2
    assert "2 sessions have this grant" in refused.err
    assert f"perdure grants revoke SESSION {grant['id']}" in refused.err
    world.ok("grants", "revoke", sessions[0], grant["id"])
    assert world.ok("grants", "revoke", grant["id"][:6]).out.startswith("Revoked: write_file a.txt")
    assert world.ok("grants", "list", "--json").json == []
    assert world.run("grants", "revoke", grant["id"]).code == 3
    named = world.run("grants", "revoke", sessions[0])
    assert named.code == 2
    assert f"perdure grants list {sessions[0]}" in named.err


def test_chat_accepts_the_same_answers_as_the_inbox(world: World) -> None:
    lines = (write("a.txt", "one"), "always", write("b.txt", "two"), "deny not there", "/quit")
    world.ok("chat", stdin="\n".join(lines))
    assert (world.folder / "a.txt").read_text() == "one"
    assert not (world.folder / "b.txt").exists()
    (grant,) = world.ok("grants", "list", session_of(world), "--json").json
    assert grant["grant"].startswith("write_file a.txt: 3 bytes, blake2b-256 ")
    assert world.ok("inbox", "list", "--json").json == []


def test_edits_command_prints_the_folder_and_the_entry_of_each_change(world: World) -> None:
    (world.folder / "a.py").write_text("one\ntwo\n")
    edit = {"path": "a.py", "old_text": "two", "new_text": "three"}
    says(world, f"/tool edit_file {json.dumps(edit)}", "--approve", "accept-edits")
    *_, name, folder, session, entry = world.ok("edits").out.splitlines()[1].split()
    assert (name, folder[:12]) == ("a.py", str(world.folder)[:12])
    shown = world.ok("sessions", "read", session, entry).out.splitlines()
    assert shown[1].startswith("→ edit_file  ")
    assert shown[2:] == ["  path = a.py", "  change:", "    | -two", "    | +three"]
