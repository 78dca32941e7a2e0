"""``perdure chat --session``: the session keeps the agent from ``--agent FILE``."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.cli.conftest import SAMPLE, SAMPLE_ID, World

CLERK = """\
id: clerk
model: scripted:echo
system_prompt: Answer.
"""


def begun(world: World, settings: str = "", status: int = 0) -> str:
    (world.folder / "clerk.agent.yaml").write_text(CLERK + settings)
    ended = world.run("chat", "--agent", "clerk.agent.yaml", "-p", "one")
    assert ended.code == status, ended.err
    return json.loads(world.ok("sessions", "list", "--json").out)[0]["id"]


@pytest.mark.parametrize("closed_by", [("export", "--format", "workflow", "-o", "."), ()])
def test_closed_session_keeps_its_agent_after_it_was_reopened(
    world: World, closed_by: tuple[str, ...]
) -> None:
    session = begun(world)
    if closed_by:
        world.ok(closed_by[0], session, *closed_by[1:])
    else:
        world.ok("sessions", "end", session)
    for said in ("two", "three"):
        ended = world.ok("chat", "--session", session, "-p", said)
        assert "not in force" not in ended.err
    assert world.ok("sessions", "show", session, "--json").json["model"] == "scripted:echo"


def test_resumed_session_keeps_the_budget_of_its_agent(world: World) -> None:
    session = begun(world, "budget: {max_cost_microcents: 5, on_exceed: fail}\n", status=1)
    ended = world.run("chat", "--session", session, "-p", "two")
    assert ended.code == 1
    assert "budget_exceeded" in ended.err
    assert "the price of scripted:echo is unknown" in ended.err


def test_resumed_session_keeps_the_tool_round_limit_of_its_agent(world: World) -> None:
    session = begun(world, "limits: {max_turns: 1}\n")
    ended = world.run("chat", "--session", session, "-p", "two")
    assert ended.code == 1
    assert "turn_limit" in ended.err
    told = " ".join(ended.err.split())
    assert "raise turn_cap in the section [chat] of your settings" in told
    assert "raise max_turns in the limits of its agent file, and name that file" in told
    assert "Runtime(" not in told


def test_resumed_session_uses_the_tool_round_limit_of_the_given_agent_file(world: World) -> None:
    session = begun(world, "limits: {max_turns: 1}\n")
    (world.folder / "clerk.agent.yaml").write_text(CLERK + "limits: {max_turns: 2}\n")
    named = ("chat", "--session", session, "--agent", "clerk.agent.yaml")
    assert "two" in world.ok(*named, "-p", "two").out
    ended = world.run(*named, "-p", "three")
    assert ended.code == 1
    assert "turn_limit" in ended.err


def test_resumed_session_gets_no_more_permissions_than_at_its_start(world: World) -> None:
    session = begun(
        world, "permissions: {approval: auto, allowed_commands: [ls]}\ntools: [run_command]\n"
    )
    wider = "permissions: {approval: auto, allowed_commands: [ls, date]}\ntools: [run_command]\n"
    (world.folder / "clerk.agent.yaml").write_text(CLERK + wider)
    named = ("chat", "--session", session, "--agent", "clerk.agent.yaml")
    said = '/tool run_command {"command": "date"}'
    refused = "the command is not one of those that are allowed"
    assert refused not in world.ok("chat", "--agent", "clerk.agent.yaml", "-p", said).out
    assert refused in world.ok(*named, "-p", said).out


def test_command_line_cannot_extend_permissions_of_a_resumed_agent(world: World) -> None:
    folder = world.folder / ".config" / "perdure" / "agents"
    folder.mkdir(parents=True)
    (folder / "clerk.agent.yaml").write_text(f"{CLERK}tools: [read_file]\n")
    world.ok("chat", "--agent", "clerk", "-p", "one")
    session = world.ok("sessions", "list", "--json").json[0]["id"]
    for wider in (
        ("--approve", "auto"),
        ("--allow-command", "date"),
        ("--allow-domain", "example.org"),
        ("--scope", "full"),
    ):
        for named in ((), ("--agent", "clerk")):
            ended = world.run("chat", "--session", session, *named, *wider, "-p", "two")
            assert ended.code == 2, (named, wider)
            assert "clerk may do is in its agent file" in ended.err or "sets the perm" in ended.err
    assert world.ok("sessions", "show", session, "--json").json["messages"] == 2


@pytest.mark.parametrize("choice", ["--session", "--continue"])
def test_session_cannot_be_resumed_with_another_agent(world: World, choice: str) -> None:
    session = begun(world)
    other = CLERK.replace("id: clerk", "id: helper")
    (world.folder / "helper.agent.yaml").write_text(other)
    chosen = ("--session", session) if choice == "--session" else ("--continue",)
    ended = world.run("chat", *chosen, "--agent", "helper.agent.yaml", "-p", "two")
    assert ended.code == 2
    told = " ".join(ended.err.split())
    assert "keeps its agent 'clerk' for life and cannot continue with 'helper'" in told


def test_session_accepts_a_message_after_the_tool_round_limit(world: World) -> None:
    rounds = "  - calls: [{name: list_directory, args: {path: .}}]\n" * 17
    scenario = world.scenario(f"name: acted\nsequence:\n{rounds}  - text: Done.\n")
    chat = ("chat", "--scenario", scenario)
    ended = world.run(*chat, "-p", "look")
    assert ended.code == 1
    told = " ".join(ended.err.split())
    assert "asked for tools 17 times in one turn" in told
    assert 'send "continue" to go on, or raise max_tool_rounds in the limits of an agent' in told
    assert world.ok(*chat, "--continue", "-p", "continue").out == "Done.\n"


def test_resume_command_in_a_chat_uses_the_agent_of_that_session(world: World) -> None:
    own = begun(world)
    agents = world.folder / ".config" / "perdure" / "agents"
    agents.mkdir(parents=True)
    (agents / "helper.agent.yaml").write_text(CLERK.replace("clerk", "helper"))
    world.ok("import", str(SAMPLE))
    typed = (
        f"/resume {SAMPLE_ID} --agent nobody",
        f"/resume {SAMPLE_ID} --agent",
        f"/resume {own} --agent helper",
        f"/resume {SAMPLE_ID} --agent helper",
        "/agent",
        f"/resume {own}",
        "/agent",
    )
    told = " ".join(world.ok("chat", stdin="\n".join(typed)).out.split())
    for text in (
        "there is no agent 'nobody' in this runtime; there are: assistant, helper",
        "--agent expects the id of one agent, at the end: /resume [ID] [--agent AGENT]",
        f"session {own} keeps its agent 'clerk' for life and cannot continue with 'helper'",
        f"going on in {SAMPLE_ID}",
        "helper: approval",
        f"going on in {own}",
        "clerk: approval",
    ):
        at = told.find(text)
        assert at >= 0, f"{text}\n{told}"
        told = told[at:]
