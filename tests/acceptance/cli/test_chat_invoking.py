"""Questions of agents that the chat's agent has invoked: shown and answered in the chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import World

SCENARIO = """
name: acted
rules:
  - when: {system_contains: lead, after_tool: invoke_agent}
    text: It is done.
  - when: {system_contains: lead}
    calls: [{name: invoke_agent, args: {agent: scribe, input: Write it down.}}]
  - when: {system_contains: scribe, after_tool: write_file}
    text: Written.
  - when: {system_contains: scribe}
    calls: [{name: write_file, args: {path: a.txt, content: the sea}}]
"""
AGENT = """id: {id}
model: scripted:acted
system_prompt: You are the {id}.
tools: [{tools}]
"""


@pytest.fixture
def staged(world: World) -> tuple[World, tuple[str, ...]]:
    """Return a world whose agent `lead` invokes `scribe`, which writes; and the chat's options."""
    folder = world.folder / ".config" / "perdure" / "agents"
    folder.mkdir(parents=True)
    for id, tools in (("lead", "invoke_agent, write_file"), ("scribe", "write_file")):
        text = AGENT.format(id=id, tools=tools)
        (folder / f"{id}.agent.yaml").write_text(text, encoding="utf-8")
    scenario = world.scenario(SCENARIO)
    return world, ("--agent", "lead", "--scenario", scenario)


def file_of(world: World) -> Path:
    return world.folder / "a.txt"


def test_turn_that_needs_an_answer_prints_the_command_to_answer(
    staged: tuple[World, tuple[str, ...]],
) -> None:
    world, options = staged
    ended = world.run("chat", "-p", "go", *options)
    assert ended.code == 1
    (waiting,) = world.ok("inbox", "--json").json
    assert f"scribe (session {waiting['session']}) asks: " in ended.err
    assert waiting["text"].rstrip(".") in ended.err
    command = f"perdure inbox answer {waiting['id']} {'|'.join(waiting['choices'])}"
    assert command in ended.err
    parent = ended.err.split("session ")[1].split()[0]
    assert f"then `perdure chat --session {parent}`" in ended.err
    assert not file_of(world).exists()

    assert f"of an agent that session {parent} has invoked" in world.ok("inbox").out
    answered = world.ok("inbox", "answer", waiting["id"], "allow")
    assert f"`perdure sessions resume {parent}` continues" in answered.out
    resumed = world.ok("chat", "--session", parent, *options[2:])
    assert "It is done." in resumed.out
    assert file_of(world).read_text(encoding="utf-8") == "the sea"


def test_turn_that_waits_for_an_answer_is_not_counted_as_interrupted(
    staged: tuple[World, tuple[str, ...]],
) -> None:
    world, options = staged
    world.run("chat", "-p", "go", *options)

    assert "interrupted" not in world.ok("inbox").out
    told = " ".join(world.ok("doctor").out.split())
    assert "ok turns 1 turn waiting for your answer `perdure inbox` lists the questions" in told
    listed = world.ok("sessions", "list", "--interrupted").out
    assert "waits for you: " in listed
    assert "INTERRUPTED" not in listed


def test_json_output_of_the_chat_contains_the_question_as_an_event(
    staged: tuple[World, tuple[str, ...]],
) -> None:
    world, options = staged
    ended = world.run("chat", "-p", "go", "--json", *options)
    assert (ended.code, ended.error["code"]) == (1, "needs_answer")
    (waiting,) = world.ok("inbox", "--json").json
    (asked,) = [event for event in ended.lines if event["type"] == "inbox:question"]
    assert asked["sessionId"] == waiting["session"] != ended.error["session"]
    assert asked["entryId"] == ended.error["question"] == waiting["id"]
    assert ended.error["choices"] == waiting["choices"]


def test_question_of_an_invoked_agent_is_answered_in_the_chat(
    staged: tuple[World, tuple[str, ...]],
) -> None:
    world, options = staged
    ended = world.ok("chat", *options, stdin="go\nmaybe\nallow once is enough\n")
    assert "scribe (session " in ended.out
    assert "asks: " in ended.out
    assert "It is done." in ended.out
    assert file_of(world).read_text(encoding="utf-8") == "the sea"
    assert world.ok("inbox", "--json").json == []
