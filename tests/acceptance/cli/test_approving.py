"""Approvals that a person reads and types at a terminal, or answers from the command line."""

from __future__ import annotations

import json
import re

from tests.acceptance.cli.conftest import World
from tests.acceptance.cli.test_pasting import Terminal, terminal

FOUR = """name: writes
sequence:
  - calls: [{name: write_file, args: {path: 0.txt, content: text}}]
  - calls: [{name: write_file, args: {path: 1.txt, content: text}}]
  - calls: [{name: write_file, args: {path: 2.txt, content: text}}]
  - calls: [{name: write_file, args: {path: 3.txt, content: text}}]
  - text: all is done
"""

WRITES = ["--display", "lines", "-m", "scripted:writes"]


def until(chat: Terminal, text: str, count: int = 1) -> str:
    """Wait until `text` was shown `count` times; return the whole output."""
    while (shown := chat.read()).count(text) < count:
        pass
    return shown


def test_answer_typed_in_the_chat_is_not_shown_as_answered_elsewhere(
    world: World,
) -> None:
    with terminal(world, *WRITES, "--scenario", world.scenario(FOUR)) as chat:
        until(chat, "> ")
        chat.type("go\n")
        for number in range(4):
            until(chat, "deny? ", number + 1)
            chat.type("allow it is fine\n")
        shown = until(chat, "all is done")
    assert "elsewhere" not in shown
    assert all((world.folder / f"{number}.txt").exists() for number in range(4))


def test_short_and_capitalized_answers_are_accepted(world: World) -> None:
    with terminal(world, *WRITES, "--scenario", world.scenario(FOUR)) as chat:
        until(chat, "> ")
        chat.type("go\n")
        for number, answer in enumerate(("y", "Yes", "n", "DENY not this")):
            until(chat, "deny? ", number + 1)
            chat.type(f"{answer}\n")
        until(chat, "all is done")
    exists = [(world.folder / f"{number}.txt").exists() for number in range(4)]
    assert exists == [True, True, False, False]


def test_approval_without_a_question_number_is_refused(world: World) -> None:
    call = json.dumps({"path": "a.txt", "content": "one"})
    world.run("chat", "-p", f"/tool write_file {call}")
    (asked,) = world.ok("inbox", "list", "--json").json
    session, _, number = asked["id"].rpartition("/")
    refused = world.run("inbox", "answer", session[:8], "allow", "--json")
    assert refused.code == 2
    assert asked["id"] in refused.error["message"]
    shorter = world.run("inbox", "answer", f"{session[:8]}/{number[:-1]}", "allow")
    assert shorter.code != 0
    assert len(world.ok("inbox", "list", "--json").json) == 1
    world.ok("inbox", "answer", f"{session[:8]}/{number}", "deny")
    assert world.ok("inbox", "list", "--json").json == []


def test_session_id_selects_the_only_question_of_that_session(world: World) -> None:
    call = json.dumps({"path": "a.txt", "content": "one"})
    for _ in range(2):
        world.run("chat", "-p", f"/tool write_file {call}")
    first, second = (each["id"] for each in world.ok("inbox", "list", "--json").json)
    ambiguous = world.run("inbox", "answer", first[:2], "deny")  # an id begins with the time
    assert (ambiguous.code, first in ambiguous.err, second in ambiguous.err) == (2, True, True)
    session = first.partition("/")[0]
    assert world.ok("inbox", "answer", session, "deny", "--json").json["question"] == first
    assert [each["id"] for each in world.ok("inbox", "list", "--json").json] == [second]
    out = world.ok("chat", stdin=f"/inbox {second.partition('/')[0]} deny not now\n").out
    assert "answered 'deny'" in out
    assert world.ok("inbox", "list", "--json").json == []
    assert world.run("inbox", "answer", session, "deny").code == 3


def test_command_printed_after_an_answer_continues_the_turn(world: World) -> None:
    call = json.dumps({"path": "a.txt", "content": "one"})
    world.run("chat", "-p", f"/tool write_file {call}")
    (asked,) = world.ok("inbox", "list", "--json").json
    answered = world.ok("inbox", "answer", asked["id"], "allow").out
    (command,) = re.findall(r"If no process runs the turn, `perdure (.*)` continues it", answered)
    assert "completed" in world.ok(*command.split()).out
    assert (world.folder / "a.txt").read_text() == "one"


def test_chat_answers_the_questions_of_other_sessions(world: World) -> None:
    long = "\n".join(f"line {number}" for number in range(30))
    world.run("chat", "-p", f"/tool write_file {json.dumps({'path': 'a.txt', 'content': long})}")
    (asked,) = world.ok("inbox", "list", "--json").json
    id, session = asked["id"], asked["session"]
    out = world.ok("chat", stdin=f"/inbox\n/inbox {session[:8]} allow\n/inbox {id} maybe\n").out
    for told in (f"/inbox {id} allow|", "line 3", "say which question you answer, with its number"):
        assert told in out
    assert "line 29" not in out
    assert len(world.ok("inbox", "list", "--json").json) == 1
    out = world.ok("chat", stdin=f"/inbox {id}\n/inbox {id} deny not on a Friday\n/inbox\n").out
    for told in ("line 29", f"`/resume {session}` continues it", "nothing waits for"):
        assert told in out
    assert "was answered 'deny' by" in world.ok("chat", stdin=f"/inbox {id} allow\n").out
    world.ok("chat", stdin=f"/resume {session}\n")
    assert "not on a Friday" in world.ok("sessions", "read", session).out
    assert not (world.folder / "a.txt").exists()
