"""``perdure mcp``: the configured servers, listed and tested by the installed command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import World
from tests.fakes.mcp_servers import HANDWRITTEN, PROGRAM, is_alive, pids


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world whose settings contain a working server and a missing one."""
    folder = tmp_path / ".config" / "perdure"
    folder.mkdir(parents=True)
    program, args = json.dumps(sys.executable), json.dumps([PROGRAM])
    deeds = json.dumps(str(tmp_path / "deeds"))
    (folder / "config.toml").write_text(
        '[chat]\nmcp_servers = ["fake"]\napproval = "auto"\n'
        f"[mcp.servers.fake]\ncommand = {program}\nargs = {args}\nenv = {{MCP_DEEDS = {deeds}}}\n"
        '[mcp.servers.gone]\ncommand = "no-such-program"\n',
        encoding="utf-8",
    )
    return World(tmp_path)


def test_servers_are_listed_without_being_started(world: World) -> None:
    rows = world.ok("mcp", "list", "--json").json
    assert [(row["name"], row["source"], row["transport"]) for row in rows] == [
        ("fake", "settings", "stdio"),
        ("gone", "settings", "stdio"),
    ]
    assert "no-such-program" in world.ok("mcp", "list").out
    assert not (world.folder / "deeds").exists()


def test_mcp_test_command_prints_why_a_tool_is_omitted(
    world: World,
) -> None:
    file = world.folder / ".config" / "perdure" / "config.toml"
    file.write_text(
        file.read_text().replace(json.dumps([PROGRAM]), json.dumps([HANDWRITTEN, "several"]))
    )
    told = world.ok("mcp", "test", "fake", "--json").json
    assert "mcp_fake_send" in [tool["name"] for tool in told["tools"]]
    assert {tool["approved_as"] for tool in told["tools"]} == {"process"}
    assert told["left_out"]
    assert all(each["reason"] for each in told["left_out"])
    shown = world.ok("mcp", "test", "fake").out
    assert "ok  fake answers: " in shown
    assert "mcp_fake_send  approved as process" in shown
    for each in told["left_out"]:
        assert f"left out  {each['tool'][:20]}" in shown
    assert not any(map(is_alive, pids(world.folder / "deeds")))


def test_unusable_server_reports_the_reason(world: World) -> None:
    ended = world.run("mcp", "test", "gone", "--json")
    assert (ended.code, ended.error["code"]) == (1, "mcp_unavailable")
    ended = world.run("mcp", "test", "other")
    assert ended.code == 3
    assert "there are: fake, gone" in ended.err


@pytest.mark.all_only
def test_chat_with_an_unusable_server_fails_and_suggests_commands(world: World) -> None:
    file = world.folder / ".config" / "perdure" / "config.toml"
    file.write_text(file.read_text().replace('["fake"]', '["gone", "fake"]'))
    said = ("chat", "-p", '/tool mcp_fake_add {"a": 4, "b": 5}')
    ended = world.run(*said)
    assert ended.code == 1
    assert "(`perdure mcp list` shows its source) and try `perdure mcp test gone`" in ended.err
    assert "`perdure chat --without-mcp gone` does without it" in ended.err
    assert world.ok("sessions", "list", "--json").json == []
    assert "9" in world.ok(*said, "--without-mcp", "gone").out
    (session,) = world.ok("sessions", "list", "--json").json
    file.write_text(file.read_text().replace('"no-such-program"', '"no-program"'))
    resumed = ("chat", "--session", session["id"], "-p", "hi")
    assert world.ok(*resumed, "--without-mcp", "fake", "--without-mcp", "gone").out
    unknown = world.run(*said, "--without-mcp", "other")
    assert (unknown.code, "there are: fake, gone" in unknown.err) == (3, True)


def test_doctor_reports_the_name_of_the_missing_program(world: World) -> None:
    ended = world.run("doctor", "--json")
    assert ended.code == 1
    checks = [check for check in ended.json["checks"] if check["name"] == "mcp"]
    assert checks[0]["detail"] == "set up: fake, gone"
    assert "the program of gone is not on this machine" in checks[1]["detail"]


@pytest.mark.all_only
def test_invalid_server_is_listed_and_does_not_affect_other_servers(world: World) -> None:
    file = world.folder / ".config" / "perdure" / "config.toml"
    lines = len(file.read_text().splitlines())
    with file.open("a") as opened:
        opened.write('[mcp.servers.bad]\ncommand = "x"\n\ntimeout_s = 0\n')
    fault = f"line {lines + 4}: 0 is not more than 0 (timeout_s)"
    rows = world.ok("mcp", "list", "--json").json
    assert [(row["name"], row["ok"]) for row in rows] == [
        ("fake", True),
        ("gone", True),
        ("bad", False),
    ]
    assert rows[2]["faults"] == [fault]
    shown = world.ok("mcp", "list").out
    assert "no-such-program" in shown
    assert fault in shown
    assert world.ok("mcp", "test", "fake").out.startswith("ok  fake answers: ")
    ended = world.run("mcp", "test", "bad", "--json")
    assert (ended.code, ended.error["code"]) == (2, "invalid_settings")
    checks = [
        each for each in world.run("doctor", "--json").json["checks"] if "mcp" in each["name"]
    ]
    assert f"bad cannot be used: {fault}" in checks[0]["detail"]
    assert checks[1]["detail"] == "set up: fake, gone"
    ended = world.run("chat", "-p", "hello", "--json")
    assert (ended.code, ended.error["code"]) == (2, "invalid_settings")
    assert ended.error["faults"] == [fault]


@pytest.mark.all_only
def test_chat_agent_gets_the_mcp_servers_from_settings(world: World) -> None:
    said = world.ok("chat", "-p", '/tool mcp_fake_add {"a": 2, "b": 3}').out
    assert "5" in said
    assert "mcp_fake_add" in said
