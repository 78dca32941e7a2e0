"""`perdure chat`: one turn, many lines, events, interruptions, questions."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.acceptance.children.killed_tool import be_killed_in_a_tool
from tests.acceptance.cli.conftest import PATIENCE_S, SAMPLE_ID, World
from tests.fakes.forked import Forked, preload, run_forked

preload(be_killed_in_a_tool.__module__)

HANGS = """
name: acted
rules:
  - when: {after_tool: read_file}
    steps: [{text: "I have read "}, hang]
  - when: {after: user}
    text: Let me read it.
    calls: [{name: read_file, args: {path: notes.txt}}]
"""
ANSWERS = HANGS.replace(
    '[{text: "I have read "}, hang]', '[{text: "I have read it: "}, {text: sea}]'
)


def until(holds: Callable[[], bool]) -> None:
    """Wait until `holds` is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def only_session(world: World) -> str:
    (row,) = world.ok("sessions", "list", "--json").json
    session: str = row["id"]
    return session


def kinds_of(world: World, session: str) -> list[str]:
    """The kinds of the entries in the session's log, in order."""
    text = world.ok("export", session).out
    return [json.loads(line).get("kind", "") for line in text.splitlines()]


def words_that_hang(world: World) -> tuple[str, ...]:
    """A command that runs a tool and then hangs in the middle of its answer."""
    (world.folder / "notes.txt").write_text("the sea", encoding="utf-8")
    return ("chat", "-p", "Read my notes", "--scenario", world.scenario(HANGS), "--json")


def wait_until_it_hangs(lines: Iterable[bytes]) -> None:
    for line in lines:
        event = json.loads(line)
        if event["type"] == "agent:token" and "have read" in event["text"]:
            return
    pytest.fail("the command has ended")


@pytest.fixture
def hanging(world: World) -> Iterator[tuple[World, str, Forked]]:
    """A chat that has run a tool and now hangs in the middle of its answer."""
    with world.fork(*words_that_hang(world)) as process:
        wait_until_it_hangs(iter(process.line, b""))
        yield world, only_session(world), process


def kill(process: Forked) -> None:
    process.kill()
    assert process.ended().code == -signal.SIGKILL


def test_one_turn_prints_the_answer_and_exits(world: World) -> None:
    ended = world.ok("chat", "-p", "hello")
    assert ended.out.startswith("offline scripted model: you wrote “hello”")
    assert ended.err == f"session {only_session(world)}\n"
    assert world.ok("store", "verify", "--json").json["ok"]


def test_chat_continues_the_same_session(world: World) -> None:
    world.ok("chat", "-p", "first")
    session = only_session(world)
    world.ok("chat", "--session", session[:8], "-p", "second")
    world.ok("chat", "--continue", "-p", "third")
    context = world.ok("sessions", "context", session, "--json").json
    asked = [m["parts"][0]["text"] for m in context["messages"] if m["role"] == "user"]
    assert asked == ["first", "second", "third"]
    assert "You can read files" in context["system"]


def test_option_continue_without_a_session_starts_a_new_session(world: World) -> None:
    ended = world.ok("chat", "--continue", "-p", "hello")
    assert "this folder has no session yet: a new session begins" in ended.err
    only_session(world)


def test_imported_session_continues_with_the_given_model(sample: World) -> None:
    before = sample.ok("sessions", "context", SAMPLE_ID, "--json").json
    assert before["model"] == "anthropic:claude-haiku-4-5"  # of the file, not set up here
    events = sample.ok("chat", "--session", SAMPLE_ID, "-p", "hello", "--json").lines
    assert {each["model"] for each in events if "model" in each} == {"scripted:echo"}
    after = sample.ok("sessions", "context", SAMPLE_ID, "--json").json
    assert after["model"] == "scripted:echo"
    ended = sample.run("chat", "--session", SAMPLE_ID, "-m", before["model"], "-p", "x", "--json")
    assert (ended.code, ended.error["code"]) == (2, "model_not_here")
    assert ended.error["model"] == "anthropic:claude-haiku-4-5"
    trip = sample.scenario("rules:\n  - text: Ahoy\n", "trip")
    named = ("-m", "scripted:trip", "--scenario", trip)
    sample.ok("chat", "--session", SAMPLE_ID, *named, "-p", "hello again")
    branch = sample.ok("sessions", "show", SAMPLE_ID, "--json").json["branch"]
    assert [row["text"] for row in branch if row["kind"] == "model_change"][-1] == "scripted:trip"
    assert sum(row["kind"] == "model_change" for row in branch) == 3


def test_tools_cannot_read_files_outside_the_working_directory(world: World) -> None:
    (world.folder / "sub").mkdir()
    (world.folder / "sub" / "a.txt").write_text("content of a", encoding="utf-8")
    (world.folder / "secret.txt").write_text("not for you", encoding="utf-8")
    calls = '/tool read_file {"path": "a.txt"}\n/tool read_file {"path": "../secret.txt"}'
    said = world.ok("chat", "--cwd", "sub", "-p", calls).out
    assert "content of a" in said
    assert "not for you" not in said
    assert "read_file failed" in said


def test_json_option_prints_every_event_in_the_wire_format(world: World) -> None:
    events = world.ok("chat", "-p", '/tool list_directory {"path": "."}', "--json").lines
    types = [event["type"] for event in events]
    assert types[:2] == ["session:started", "session:turn_started"]
    assert events[0]["sequenceNumber"] == 0
    assert events[0]["agentRef"] == "assistant"
    assert types[-1] == "session:turn_completed"
    assert {"agent:token", "agent:message", "agent:tool_call", "agent:tool_result"} <= set(types)
    durable = [event for event in events if "sequenceNumber" in event]
    numbers = [(event["sequenceNumber"], event.get("index", 0)) for event in durable]
    assert numbers == sorted(set(numbers))
    assert {event["sessionId"] for event in events} == {only_session(world)}
    assert all({"of", "n"} <= set(event) for event in events if event["type"] == "agent:token")
    resumed = world.ok("chat", "--continue", "-p", "hello", "--json").lines
    assert resumed[0]["type"] == "session:turn_started"
    piped = world.ok("chat", "--json", stdin="hello\nagain\n").lines
    types = [event["type"] for event in piped]
    assert (types[0], types.count("session:started")) == ("session:started", 1)


def test_error_for_an_unknown_chat_command_suggests_another_command(world: World) -> None:
    ended = world.ok("chat", stdin="hello\n/undo\n/pin 2\n/quit\n")
    assert "unknown command /undo; /tree or /branch ENTRY continues from an earlier" in ended.out
    assert "unknown command /pin; `perdure sessions pin ID ENTRY` keeps an entry" in ended.out


def test_each_piped_line_becomes_a_separate_turn(world: World) -> None:
    ended = world.ok(
        "chat", stdin="first\nsecond\n/tree\n/nonsense\n/exprot a\n/label\n/quit\nnever said\n"
    )
    assert ended.out.index("“first”") < ended.out.index("“second”")
    assert "● user       first" in ended.out
    assert "unknown command /nonsense" in ended.out
    assert "unknown command /exprot; did you mean /export?" in ended.out
    assert "/label needs an entry" in ended.out
    assert "never said" not in ended.out
    assert f"perdure chat --session {only_session(world)}  continues it" in ended.out


def test_chat_command_with_an_invalid_argument_explains_the_error(world: World) -> None:
    typed = {
        "/thinking huge": "'huge' is no thinking level: write one of off, minimal,",
        "/approve yes": "'yes' is no approval mode: write one of ask, plan,",
        "/branch nope": "; /tree shows them",
        "/resume nope": "no session 'nope' here; /resume lists the sessions",
        "/inbox nope": "no question 'nope' waits here; /inbox lists those that do",
        '/export "a': "a quote is not closed: /export FILE.html",
        "/new say this": "/new takes nothing after it: type /new alone",
        "/cost all": "/cost takes nothing after it: type /cost alone",
    }
    ended = world.ok("chat", stdin="\n".join(["hello", *typed]))
    for line, told in typed.items():
        assert told in ended.out, f"{line}\n{ended.out}"
    assert "say this" not in ended.out


def test_resume_command_printed_by_the_chat_opens_the_same_store(world: World) -> None:
    scenario = world.scenario("rules: [{text: Aye.}]", "a name")
    place = ("--store", "sqlite:///other.db", "--namespace", "ours", "--scenario", scenario)
    ended = world.ok("chat", *place, stdin="hello\n")
    (command,) = re.findall(r"perdure (chat --session .*)  continues it", ended.out)
    again = world.ok(*shlex.split(command), stdin="again\n")
    assert f"perdure {command}  continues it" in again.out
    assert "Aye." in again.out


def test_piped_chat_exits_with_an_error_if_a_message_fails(world: World) -> None:
    refuses = "rules:\n  - when: {user_contains: first}\n    error: {code: model_refused}\n"
    scenario = world.scenario(f"{refuses}  - text: Fine\n")
    ended = world.run("chat", "--scenario", scenario, stdin="first\nsecond\n")
    assert ended.code == 1
    assert "The turn failed" in ended.out
    assert "Fine" in ended.out
    assert world.run("chat", "-m", "scripted:nope", stdin="first\n").code == 2
    assert world.run("chat", "--scenario", scenario, stdin="second\n/branch 99\n").code == 0


def test_chat_commands_label_branch_and_compact_the_session(world: World) -> None:
    lines = ["first", "/label 2 begin here", "/branch root", "/branch root", "second"]
    text = "\n".join([*lines, "/branch 99", "/compact", "/help\n"])
    ended = world.ok("chat", stdin=text)
    session = only_session(world)
    assert f"{session}/2 is called begin here now" in ended.out
    assert "going on from before the first entry; /tree has the branch that was left" in ended.out
    assert ended.out.count("/tree has the branch that was left") == 1
    assert "no entry '99'" in ended.out
    assert "Nothing to compact: the newest 20,000 tokens are not summarized" in ended.out
    assert "not summarized, and the context has" in world.ok("sessions", "compact", session).out
    assert "/branch ENTRY" in ended.out
    tree = world.ok("sessions", "tree", session, "--json").json
    assert [root.get("label") for root in tree["roots"]] == ["begin here", None]


def test_piped_text_is_sent_after_the_prompt_text(world: World) -> None:
    world.ok("chat", "-p", "explain this", stdin="one\n  two\n\n")
    session = only_session(world)
    said = world.ok("sessions", "read", session, "--json").json[0]
    assert said["body"]["parts"][0]["text"] == "explain this\n\none\n  two"
    world.ok("chat", "--session", session, "-p", "alone", stdin="")
    said = world.ok("sessions", "read", session, "--last", "2", "--json").json[0]
    assert said["body"]["parts"][0]["text"] == "alone"


def test_open_pipe_without_text_does_not_delay_a_prompt(world: World) -> None:
    process = world.start("chat", "-p", "explain this")
    assert process.wait(PATIENCE_S) == 0
    _, told = process.communicate()
    assert b"nothing came through stdin" in told


def test_every_chat_command_prints_its_result(world: World) -> None:
    text = "\n".join(
        (
            "/model",
            "/model scripted:nope",
            "/cost",
            "first",
            "/model nope",
            "/model scripted:echo",
            "/thinking",
            "/thinking high",
            "/thinking loud",
            "/context",
            "/cost",
            "/inbox",
            "/agent",
            "/memory first",
            "/export talk.html",
            "/export talk.txt",
            "/fork",
            "second",
            "/new",
            "third",
            "/resume",
            "/nonsense",
        )
    )
    out = world.ok("chat", stdin=text).out
    for told in (
        "the model is scripted:echo",
        "unknown scenario; available: echo",
        "; /model NAME chooses another (/model scripted:echo works offline)",
        "no messages yet",
        "'nope' names no provider and model: write provider:name",
        "from the next message on the model is scripted:echo",
        "the thinking level is off",
        "from the next message on the thinking level is high",
        "write one of off, minimal",
        "scripted:echo: 2 messages, about ",
        "the cost of this session is unknown: 1 call without a price",
        "nothing waits for you",
        "approval ask; tools: ",
        "wrote talk.html",
        "name a file that ends with .html, .md, .jsonl",
        ", a fork of ",
        "the next message begins a new session",
        "/resume ",
        "unknown command /nonsense",
    ):
        assert told in out, told
    assert "perdure chat -m" not in out
    assert (world.folder / "talk.html").read_text().startswith("<!doctype html>")
    rows = world.ok("sessions", "list", "--json").json
    assert [row["messages"] for row in rows] == [2, 4, 2]


@pytest.mark.parametrize(
    "typed", [("first", "/approve plan"), ("/approve plan", "first")], ids=["after", "before"]
)
def test_fork_keeps_the_restricted_permissions_of_the_chat(
    world: World, typed: tuple[str, str]
) -> None:
    lines = (*typed, "/fork", "/approve", "/approve auto", "/fork", "/approve")
    out = world.ok("chat", "--approve", "auto", stdin="\n".join(lines)).out
    told = [line.split()[1] for line in out.splitlines() if line.startswith("approval: ")]
    assert told == ["plan", "plan", "auto", "auto"]


def test_session_resumed_in_the_chat_keeps_its_restricted_permissions(world: World) -> None:
    world.ok("chat", "-p", "first")
    mine = only_session(world)
    world.ok("chat", "-p", "second")
    other = world.ok("sessions", "list", "--json").json[0]["id"]
    lines = ["/approve plan"]
    lines += (f"/resume {mine}", "/approve", f"/resume {other}", "/approve", f"/resume {mine}")
    lines += ("/approve", "/fork", "/approve", "/approve auto", f"/resume {mine}", "/approve")
    out = world.ok("chat", "--session", mine, "--approve", "auto", stdin="\n".join(lines)).out
    told = [line.split()[1] for line in out.splitlines() if line.startswith("approval: ")]
    assert told == ["plan", "plan", "auto", "plan", "plan", "auto", "plan"]


def test_resume_command_in_a_chat_continues_the_given_session(world: World) -> None:
    world.ok("chat", "-p", "first")
    session = only_session(world)
    out = world.ok("chat", stdin=f"/resume {session[:8]}\nsecond\n/resume nowhere\n").out
    assert f"going on in {session}" in out
    assert "no session 'nowhere'" in out
    assert world.ok("sessions", "list", "--json").json[0]["messages"] == 4


def test_commands_before_the_first_message_create_no_session(world: World) -> None:
    typed = ("/tree", "/branch 1", "/compact", "/label 1 x", "/fork", "/cost", "/context")
    ended = world.ok("chat", stdin="\n".join(typed))
    assert ended.out.count("no messages yet: send a message first") == len(typed)
    assert world.ok("sessions", "list", "--json").json == []


def test_thinking_level_set_before_the_first_message_applies_to_the_new_session(
    world: World,
) -> None:
    typed = "/thinking super\n/thinking\n/thinking high\n/thinking\nfirst\n/thinking\n"
    out = world.ok("chat", stdin=typed).out
    assert "write one of off, minimal" in out
    assert "the thinking level is off" in out
    assert out.count("the thinking level is high") == 3  # switched, asked before, asked after
    context = world.ok("sessions", "context", only_session(world), "--json").json
    assert context["thinking_level"] == "high"


CHAT_MISTAKES = (
    # what is typed after a first message, and the remark
    ("/branch", "/branch needs an entry; /tree shows them"),
    ("/label", "/label needs an entry, then its label; /tree shows the entries"),
    ("/attach", "/attach needs a file, for example /attach notes.txt"),
    ("/memory", "/memory needs a question, for example /memory which hotel"),
    ("/export", "/export needs a file: /export FILE.html, FILE.md or FILE.jsonl"),
    ("/allow", "/allow needs a command, for example /allow pytest tests/*; * is any text"),
    ("/attach folder", "folder is a folder: attach a file of it"),
    ("/attach nothing", "no such file or folder: nothing"),
    ("/quit now", "/quit takes nothing after it: type /quit alone"),
    ("/qiut", "unknown command /qiut; did you mean /quit?"),
)


def test_chat_suggests_a_correction_for_a_typed_mistake(world: World) -> None:
    (world.folder / "folder").mkdir()
    out = world.ok("chat", stdin="\n".join(["hello", *(typed for typed, _ in CHAT_MISTAKES)])).out
    for typed, told in CHAT_MISTAKES:
        assert told in out, typed


def test_scripted_model_answers_the_messages_in_order(world: World) -> None:
    scenario = world.scenario("sequence:\n  - text: Ahoy\n  - text: Land\n", "trip")
    assert world.ok("chat", "-p", "hi", "--scenario", scenario).out == "Ahoy\n"
    ended = world.run("chat", "--continue", "-p", "and now?", "--scenario", scenario)
    assert ended.out == "Land\n"
    assert world.run("chat", "-p", "x", "--scenario", "none.yaml").code == 3


def test_failed_turn_reports_its_reason(world: World) -> None:
    scenario = world.scenario(
        "rules:\n  - error: {code: model_refused, reason: not today}\n", "refuses"
    )
    ended = world.run("chat", "-p", "hi", "--scenario", scenario, "--json")
    assert ended.code == 1
    assert ended.error["code"] == "turn_failed"
    assert "not today" in ended.error["message"]
    talked = world.ok("chat", stdin="hi\n/tree\n")
    assert "you wrote “hi”" in talked.out


def test_ctrl_c_ends_the_turn_and_keeps_the_messages(world: World) -> None:
    process = world.start(*words_that_hang(world))
    assert process.stdout is not None
    wait_until_it_hangs(process.stdout)
    session = only_session(world)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    data = world.ok("sessions", "show", session, "--json").json
    assert data["open_turn"] is False
    assert data["cut_answer"] == "I have read "
    assert "cut, not in the context: I have read" in world.ok("sessions", "show", session).out
    assert "not in the context\nI have read" in world.ok("sessions", "read", session).out
    world.ok("chat", "--session", session, "-m", "scripted:echo", "-p", "go on")
    assert world.ok("sessions", "show", session, "--json").json["cut_answer"] is None


def test_resuming_a_killed_turn_does_not_repeat_its_tool_call(
    hanging: tuple[World, str, Forked],
) -> None:
    world, session, process = hanging
    kill(process)
    assert world.ok("sessions", "show", session, "--json").json["open_turn"] is True
    refused = world.run("sessions", "branch", session, "root", "--json")
    assert (refused.code, refused.error["code"]) == (4, "turn_open")
    scenario = world.scenario(ANSWERS)
    ended = world.ok("chat", "--session", session, "--scenario", scenario)
    assert "going on with the turn that was interrupted" in ended.out
    assert "I have read it: sea" in ended.out
    assert kinds_of(world, session).count("tool_started") == 1
    assert world.ok("sessions", "show", session, "--json").json["open_turn"] is False


def test_partial_answer_of_a_killed_turn_is_shown_until_the_turn_is_resumed(
    hanging: tuple[World, str, Forked],
) -> None:
    world, session, process = hanging

    def cut() -> str | None:
        answer: str | None = world.ok("sessions", "show", session, "--json").json["cut_answer"]
        return answer

    until(lambda: cut() == "I have read ")  # it is stored within 250 ms
    kill(process)
    assert cut() == "I have read "
    assert "cut, not in the context: I have read" in world.ok("sessions", "show", session).out
    told = world.ok("sessions", "read", session).out
    assert told.endswith("\n\npartial answer, not in the context\nI have read \n")
    assert "partial answer" not in world.ok("sessions", "read", session, "0").out
    world.ok("chat", "--session", session, "--scenario", world.scenario(ANSWERS))
    assert "partial answer" not in world.ok("sessions", "read", session).out


def test_show_and_read_commands_accept_a_session_with_a_damaged_entry(
    hanging: tuple[World, str, Forked],
) -> None:
    world, session, process = hanging
    kill(process)
    with closing(sqlite3.connect(world.file)) as db, db:
        newest = "SELECT max(seq) FROM entry"  # the call that hangs
        db.execute(f"UPDATE entry SET body = x'ff' WHERE seq = ({newest})")
    assert "Read my notes" in world.ok("sessions", "show", session).out
    assert world.ok("sessions", "show", session, "--json").json["cut_answer"] is None
    assert "Read my notes" in world.ok("sessions", "read", session).out


def test_killed_turn_is_resumed_before_the_next_prompt(
    hanging: tuple[World, str, Forked],
) -> None:
    world, session, process = hanging
    kill(process)
    scenario = world.scenario(ANSWERS)
    ended = world.ok("chat", "--session", session, "--scenario", scenario, "-p", "Once more")
    assert "going on with the turn that was interrupted" in ended.err
    assert ended.out == "I have read it: sea\n"
    context = world.ok("sessions", "context", session, "--json").json
    roles = [message["role"] for message in context["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2


def test_killed_turn_is_listed_as_interrupted_and_can_be_resumed(
    hanging: tuple[World, str, Forked],
) -> None:
    world, session, process = hanging
    assert world.ok("sessions", "list", "--interrupted", "--json").json == []
    assert world.ok("sessions", "list", "--json").json[0]["state"] == "running"
    kill(process)
    (row,) = world.ok("sessions", "list", "--interrupted", "--json").json
    assert (row["id"], row["state"]) == (session, "interrupted")
    assert "INTERRUPTED" in world.ok("sessions", "list").out
    assert "1 turn interrupted" in world.ok("inbox").out
    (check,) = [
        each for each in world.ok("doctor", "--json").json["checks"] if each["name"] == "turns"
    ]
    assert (check["status"], check["detail"]) == ("warn", "1 turn interrupted")
    told = world.run("sessions", "resume", "--all")  # its model is not here
    abandon = f"with `perdure sessions abandon {session}`"
    assert told.out.endswith(f"{abandon}, then `perdure chat --session {session} -m MODEL`\n")
    assert "--scenario FILE" in told.out
    failed = world.run("sessions", "resume", "--all", "--json")
    assert (failed.code, failed.lines[0]["ending"]) == (1, "failed")
    assert "name the file of its scenario with --scenario FILE" in failed.lines[0]["detail"]
    ended = world.run("chat", "--session", session, "-p", "Go on", "--json")
    assert (ended.code, ended.error["code"]) == (2, "model_not_here")  # and the turn stays open
    scenario = world.scenario(ANSWERS)
    done = world.ok("sessions", "resume", "--all", "--scenario", scenario, "--json").lines
    assert done == [{"session": session, "ending": "completed", "detail": "I have read it: sea"}]
    assert kinds_of(world, session).count("tool_started") == 1
    assert world.ok("sessions", "list", "--interrupted", "--json").json == []
    again = world.ok("sessions", "resume", session, "--json").lines
    assert again[0]["ending"] == "not interrupted"
    assert world.ok("sessions", "resume", "--all").out == "No turn is interrupted.\n"


@pytest.mark.parametrize("is_piped", [False, True], ids=["prompt", "lines"])
def test_resumed_turn_keeps_its_model_if_another_model_is_given(
    hanging: tuple[World, str, Forked], *, is_piped: bool
) -> None:
    world, session, process = hanging
    kill(process)
    resume = ("chat", "--session", session, "--scenario", world.scenario(ANSWERS))
    other = (*resume, "-m", "scripted:echo")
    ended = world.ok(*other, stdin="Go on") if is_piped else world.ok(*other, "-p", "Go on")
    said = "going on with the turn that was interrupted, with its model scripted:acted; "
    assert f"{said}scripted:echo gets the next message\n" in ended.out + ended.err
    models = [
        (entry["body"]["model"], entry["body"]["parts"][-1].get("text", "")[:16])
        for entry in world.ok("sessions", "read", session, "--json").json
        if entry["body"].get("role") == "assistant"
    ]
    assert models[-2:] == [
        ("scripted:acted", "I have read it: "),
        ("scripted:echo", "offline scripted"),
    ]


def test_chat_after_a_kill_refuses_another_model(
    hanging: tuple[World, str, Forked],
) -> None:
    world, session, process = hanging
    kill(process)
    other = ("chat", "--session", session, "-m", "scripted:echo", "-p", "Go on")
    refused = world.run(*other, "--json")
    assert (refused.code, refused.error["code"]) == (2, "model_not_here")
    assert f"`perdure sessions abandon {session}`" in refused.error["message"]
    assert f"`perdure chat --session {session} -m MODEL`" in refused.error["message"]
    world.ok("sessions", "abandon", session)
    assert "you wrote “Go on”" in world.ok(*other).out


def test_second_process_cannot_run_a_turn_in_the_same_session(
    hanging: tuple[World, str, Forked],
) -> None:
    world, session, process = hanging
    ended = world.run("chat", "--session", session, "-p", "me too", "--json")
    assert (ended.code, ended.error["code"]) == (4, "lease_held")
    kill(process)


def test_chat_with_a_missing_session_exits_3(world: World) -> None:
    assert world.run("chat", "--session", "nowhere", "-p", "hi").code == 3
    assert world.run("chat", "--session", "a", "--continue").code == 2
    assert world.run("chat", "--cwd", "nowhere", "-p", "hi").code == 3
    assert world.run("chat", "-m", "nonsense", "-p", "hi").code == 2
    ended = world.run("chat", "-m", "openai:gpt", "-p", "hi", "--json")
    assert ended.code == 2
    assert "OPENAI_API_KEY" in ended.error["message"]


UNSURE = """
name: acted
rules:
  - when: {after_tool: add_line}
    text: Good.
  - when: {after: user}
    calls: [{name: add_line, args: {path: notebook.txt, text: once}}]
"""


def inbox_of(world: World) -> list[dict[str, Any]]:
    waiting: list[dict[str, Any]] = world.ok("inbox", "--json").json
    return waiting


def killed_in_a_tool(world: World) -> str:
    """Return the id of a session that was killed inside a tool with policy ``ask``."""
    scenario = world.scenario(UNSURE)
    folder = str(world.folder)
    done = run_forked(be_killed_in_a_tool, "asks", scenario, world.environment, folder)
    assert done.code == -signal.SIGKILL, done.err
    return "asks"


def test_interrupted_tool_call_is_listed_and_answered_in_the_inbox(world: World) -> None:
    session = killed_in_a_tool(world)
    scenario = world.scenario(UNSURE)
    ended = world.run("chat", "--session", session, "--scenario", scenario, "-p", "go", "--json")
    assert (ended.code, ended.error["code"]) == (1, "needs_answer")
    (waiting,) = inbox_of(world)
    assert waiting["id"] == ended.error["question"]
    assert (waiting["choices"], waiting["session"]) == (["retry", "skip", "done"], session)
    listed = world.ok("inbox", "list").out
    assert f"perdure inbox answer {waiting['id']} retry|skip|done" in listed
    assert "add_line (notebook.txt) was cut off while it ran" in listed
    wrong = world.run("inbox", "answer", waiting["id"], "perhaps", "--json")
    assert (wrong.code, wrong.error["code"]) == (2, "invalid_entry")
    answered = world.ok(
        "inbox", "answer", waiting["id"][:6], "done", "--note", "seen", "--json"
    ).json
    assert answered == {"session": session, "question": waiting["id"], "choice": "done"}
    assert inbox_of(world) == []
    again = world.run("inbox", "answer", waiting["id"], "retry", "--json")
    assert (again.code, again.error["code"]) == (4, "already_answered")
    finished = world.ok("chat", "--session", session, "--scenario", scenario)
    assert "Good." in finished.out
    assert kinds_of(world, session).count("tool_started") == 1


def test_chat_asks_what_to_do_after_an_interrupted_tool_call(world: World) -> None:
    session = killed_in_a_tool(world)
    scenario = world.scenario(UNSURE)
    ended = world.ok(
        "chat", "--session", session, "--scenario", scenario, stdin="what?\ndone I saw it\n"
    )
    assert "it may have taken effect" in ended.out
    assert ended.out.count("retry / skip / done?") == 2
    assert "Good." in ended.out
    assert inbox_of(world) == []


def test_question_of_an_abandoned_turn_is_removed_from_the_inbox(world: World) -> None:
    session = killed_in_a_tool(world)
    words = ("chat", "--session", session, "--scenario", world.scenario(UNSURE), "-p", "go")
    told = world.run(*words).err  # the prompt is sent after the turn
    assert 0 < told.find("your message was not sent, and is") < told.find("the turn waits for you")
    (waiting,) = inbox_of(world)
    world.ok("sessions", "abandon", session)
    assert inbox_of(world) == []
    late = world.run("inbox", "answer", waiting["id"], "retry", "--json")
    assert (late.code, late.error["code"]) == (4, "question_closed")
    assert world.run("inbox", "answer", waiting["id"], "retry").err.count("\n") == 1


def test_question_without_a_terminal_stays_open(world: World) -> None:
    session = killed_in_a_tool(world)
    ended = world.run("chat", "--session", session, "--scenario", world.scenario(UNSURE))
    assert ended.code == 1
    assert "the turn waits for you" in ended.err
    assert len(inbox_of(world)) == 1
    assert world.run("inbox", "answer", "nowhere", "done").code == 3


def test_interrupted_turn_can_be_abandoned(
    hanging: tuple[World, str, Forked],
) -> None:
    world, session, process = hanging
    held = world.run("sessions", "abandon", session, "--json")
    assert (held.code, held.error["code"]) == (4, "lease_held")
    kill(process)
    given_up = world.ok("sessions", "abandon", session, "--json").json
    assert given_up == {"session": session, "abandoned": True}
    assert world.ok("sessions", "abandon", session, "--json").json["abandoned"] is False
    world.ok("sessions", "branch", session, "root")


def test_file_named_only_in_piped_text_is_not_attached(
    world: World,
) -> None:
    (world.folder / "sea.py").write_text("print('sea')\n")
    (world.folder / "land.py").write_text("print('land')\n")
    ended = world.ok("chat", "-p", "see @sea.py and @gone.py", stdin="and @land.py\n")
    assert "attached: sea.py" in ended.err
    assert "sent as text, because the folder has no such file: @gone.py" in ended.err
    said = world.ok("sessions", "read", only_session(world), "--json").json[0]["body"]["parts"]
    assert [part["text"] for part in said] == [
        "see @sea.py and @gone.py\n\nand @land.py",
        "sea.py:\n```\nprint('sea')\n```",
    ]
