"""Settings and agents as people use them: with real commands, in a project, and with own files."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import cast

import msgspec
import pytest

import perdure
from tests.acceptance.cli.conftest import World

CHAT_GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "terminal-chat.md"
AGENT = "id: {id}\nmodel: scripted:echo\nsystem_prompt: You are {id}.\n"


@pytest.fixture
def project(world: World) -> World:
    """A project; the person's own files are in the folder above the project."""
    folder = world.folder / "tides"
    folder.mkdir()
    made = World(folder, {"HOME": str(world.folder), "PERDURE_STORE": f"sqlite:///{world.file}"})
    made.ok("init")
    return made


def own(project: World, name: str, text: str) -> Path:
    file = project.folder.parent / ".config" / "perdure" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_config_explain_prints_the_source_of_each_value(project: World) -> None:
    mine = own(project, "config.toml", '[chat]\nmodel = "openai:x"\nturn_cap = 9\n')
    plain = World(project.folder, {**project.extra, "PERDURE_MODEL": ""})
    told = {each["key"]: each for each in plain.ok("config", "explain", "--json").json}
    assert told["chat.model"]["where"] == f"{mine}:2"
    assert told["chat.turn_cap"]["value"] == 9
    assert told["store.namespace"]["source"] == "project"
    typed = World(project.folder, {**project.extra, "PERDURE_MODEL": "scripted:echo"})
    (model,) = typed.ok("config", "explain", "chat.model", "--json").json
    assert (model["value"], model["where"]) == ("scripted:echo", "$PERDURE_MODEL")
    assert [each["value"] for each in model["overrides"]] == ["openai:x", None]
    assert "goes before openai:x" in typed.ok("config", "explain", "chat.model").out
    assert project.run("config", "explain", "chat.x").code == 2


def test_config_explain_command_prints_a_cost_limit_in_dollars(project: World) -> None:
    own(project, "config.toml", "[chat]\nmax_cost_microcents = 8000000\n")
    assert "8000000 ($0.08)" in project.ok("config", "explain", "chat.max_cost_microcents").out
    (limit,) = project.ok("config", "explain", "chat.max_cost_microcents", "--json").json
    assert limit["value"] == 8_000_000


def test_cost_limit_setting_of_the_chat_guide_works(project: World) -> None:
    (settings,) = re.findall(r"```toml\n(.*?)```", CHAT_GUIDE.read_text(), re.DOTALL)

    def write(text: str, dollars_per_million: int) -> None:
        price = f'[models.prices."scripted:*"]\ninput = 1\noutput = {dollars_per_million}\n'
        own(project, "config.toml", f"{text}\n{price}")

    write(settings, 50)
    limit = project.ok("config", "explain", "chat.max_cost_microcents").out
    assert "50000000 ($0.50)" in limit
    project.ok("chat", "-m", "scripted:echo", "-p", "hello")
    (row,) = project.ok("sessions", "list", "--json").json
    write(settings, 500)
    waits = project.run("chat", "--session", row["id"], "-p", "more")
    assert (waits.code, "of $0.50. continue: " in waits.err) == (1, True)
    (question,) = project.ok("inbox", "--json").json
    project.ok("inbox", "answer", question["id"], "continue")
    project.ok("sessions", "resume", row["id"])
    assert "you wrote “more”" in project.ok("sessions", "read", row["id"], "--last", "1").out
    write(settings.replace("pause_for_approval", "fail"), 50_000)
    fails = project.run("chat", "-m", "scripted:echo", "-p", "hello")
    assert (fails.code, "(budget_exceeded)" in fails.err) == (1, True)


def test_agents_show_command_prints_the_budget_in_dollars(project: World) -> None:
    text = AGENT.format(id="poor") + "budget: {max_cost_microcents: 8000000}\n"
    own(project, "agents/poor.agent.yaml", text)
    shown = project.ok("agents", "show", "poor").out
    assert "# a session may spend $0.08\n" in shown
    own(project, "agents/poor.agent.yaml", shown)
    assert "max_cost_microcents: 8000000" in project.ok("agents", "show", "poor").out
    assert "may spend" not in project.ok("agents", "show", "helper").out


def test_config_path_prints_the_paths_of_the_settings_files(project: World) -> None:
    told = project.ok("config", "path", "--json").json
    assert [(each["source"], each["exists"]) for each in told] == [
        ("user", False),
        ("project", True),
        ("project agents", True),
        ("user agents", False),
    ]


def test_every_command_fails_if_a_project_has_a_forbidden_setting(project: World) -> None:
    config = project.folder / ".perdure" / "config.toml"
    config.write_text('[store]\nnamespace = "x"\naddress = "postgresql://example.org/x"\n')
    ended = project.run("sessions", "list", "--json")
    assert ended.code == 2
    assert ended.error["code"] == "invalid_settings"
    assert ended.error["faults"][0].startswith("line 3: a project cannot set store.address")


def test_command_without_store_option_uses_configured_store(project: World) -> None:
    own(project, "config.toml", f'[store]\naddress = "sqlite:///{project.folder}/own.db"\n')
    here = World(project.folder, {**project.extra, "PERDURE_STORE": None})
    here.ok("chat", "-p", "hello")
    assert (project.folder / "own.db").exists()


def test_agents_are_listed_shown_and_validated(project: World) -> None:
    own(project, "agents/mine.agent.yaml", AGENT.format(id="mine"))
    told = project.ok("agents", "list", "--json").json
    assert [(each["id"], each["source"]) for each in told] == [
        ("helper", "project"),
        ("mine", "user"),
    ]
    assert "Answers questions" in project.ok("agents", "list").out
    assert "system_prompt: You are mine." in project.ok("agents", "show", "mine").out.replace(
        '"', ""
    )
    assert project.ok("agents", "validate").out.count("ok") == 2
    own(project, "agents/bad.agent.yaml", "id: bad\nmodel: x\nfoo: 1\n")
    ended = project.run("agents", "validate", "--json")
    assert ended.code == 1
    assert [len(each["faults"]) for each in ended.json] == [0, 3, 0]
    assert project.run("agents", "validate", "nowhere.agent.yaml").code == 3


def test_chat_uses_an_agent_by_id_or_file(project: World) -> None:
    project.ok("chat", "--agent", "helper", "-p", "hello")
    (session,) = project.ok("sessions", "list", "--json").json
    project.ok("chat", "--session", session["id"], "-p", "again")
    project.ok("chat", "--agent", ".perdure/agents/helper.agent.yaml", "-p", "hello")
    ended = project.run("chat", "--agent", "nobody", "-p", "x")
    assert ended.code == 3
    assert "there is no agent 'nobody'; there are: helper" in ended.err
    project.ok("chat", "--session", session["id"], "--agent", "helper", "-p", "x")


@pytest.mark.parametrize(
    "wider", [("--approve", "auto"), ("--allow-command", "date"), ("--scope", "full")]
)
def test_command_line_cannot_extend_permissions_of_a_resumed_project_agent(
    project: World, wider: tuple[str, ...]
) -> None:
    project.ok("chat", "--agent", "helper", "-p", "hello")
    (session,) = project.ok("sessions", "list", "--json").json
    named = ("chat", "--session", session["id"], "--agent", "helper")
    ended = project.run(*named, *wider, "-p", '/tool write_file {"path": "a", "content": "b"}')
    assert ended.code == 2
    assert "what helper may do is in its agent file" in ended.err
    assert not (project.folder / "a").exists()


def test_duplicate_agent_id_error_mentions_both_files(project: World) -> None:
    own(project, "agents/helper.agent.yaml", AGENT.format(id="helper"))
    ended = project.run("chat", "--agent", "helper", "-p", "x")
    assert ended.code == 2
    assert ended.err.count("helper.agent.yaml") == 2


def test_project_agent_is_reported_with_its_missing_permissions(project: World) -> None:
    file = project.folder / ".perdure" / "agents" / "eager.agent.yaml"
    file.write_text(
        AGENT.format(id="eager") + "tools: [write_file]\npermissions: {approval: auto}\n"
    )
    call = '/tool write_file {"path": "x", "content": "y"}'
    ended = project.run("chat", "--agent", "eager", "-p", call)
    assert "eager asks for more than you allow: approval" in ended.err
    assert ended.code == 1  # it waits for an answer
    assert not (project.folder / "x").exists()
    ended = project.run("chat", "--agent", str(file), "-p", call)
    assert ended.code == 0
    assert (project.folder / "x").read_text() == "y"


def test_session_of_an_invoked_agent_is_linked_to_its_parent_session(project: World) -> None:
    own(project, "agents/lead.agent.yaml", AGENT.format(id="lead") + "tools: [invoke_agent]\n")
    call = json.dumps({"agent": "helper", "input": "look"})
    ended = project.ok("chat", "--agent", "lead", "-p", f"/tool invoke_agent {call}")
    assert "you wrote “look”" in ended.out
    (parent,) = project.ok("sessions", "list", "--json").json
    shown = project.ok("sessions", "show", parent["id"], "--json").json
    (child,) = shown["children"]
    assert child["agent"] == "helper"
    below = project.ok("sessions", "show", child["session"], "--json").json
    assert below["parent"] == parent["id"]
    assert below["invoked_by"]["call_id"] == child["call_id"]
    assert child["session"] in project.ok("sessions", "tree", parent["id"]).out
    assert child["session"] in project.ok("sessions", "show", parent["id"]).out
    assert parent["id"] in project.ok("sessions", "show", child["session"]).out


def test_chat_with_a_budget_warns_of_a_model_without_a_price(project: World) -> None:
    own(project, "config.toml", "[chat]\nmax_cost_microcents = 100_000_000\n")
    ended = project.run("chat", "-m", "scripted:echo", "-p", "Hi")
    assert ended.code == 1
    assert (
        "the price of scripted:echo is unknown, so the limit of $1.00 cannot be kept" in ended.err
    )
    assert "[models.prices]" in ended.err


def test_new_chats_use_timeouts_of_settings(project: World) -> None:
    own(
        project,
        "config.toml",
        '[chat]\nmodel = "scripted:echo"\nfirst_byte_timeout_s = 300\nstream_idle_timeout_s = 90\n',
    )
    project.ok("chat", "-p", "Hi")

    async def agent() -> object:
        async with perdure.open(project.extra["PERDURE_STORE"], namespace="tides") as store:
            session = await store.continue_recent()
            return msgspec.json.decode((await anext(session.entries())).body)["agent"]

    started = cast("dict[str, object]", asyncio.run(agent()))
    assert started["first_byte_timeout_s"] == 300
    assert started["stream_idle_timeout_s"] == 90
