"""A session exported as a workflow is run again: as a process, killed, resumed, inspected."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast

import pytest

import perdure
from perdure.client.agents.agent import Agent, Fallback
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.workspace import Workspace
from perdure.engine.turns.config import Limits
from perdure.workflow.document import AgentNode, Workflow
from perdure.workflow.reader import parse
from tests.acceptance.cli.conftest import PATIENCE_S, SAMPLE, SAMPLE_ID, Ended, World

OPENER = '{{run.id}} {{inputs.message}} {{ "x" | read_file }}'
"""A text that a person typed in a session; no part of it is ever evaluated."""

DOCUMENT = """\
schema_version: "1.0"
workflow:
  id: trip
  inputs:
    - {name: topic, required: true, description: What it is about}
    - {name: days, type: number, default: 3}
  context:
    - {key: style, value: "{{inputs.days}} days"}
  agents:
    - {id: helper, model: echo, provider: scripted, system_prompt: "Be short.", tools: [read_file]}
  nodes:
    - {id: input, type: input}
    - {id: plan, type: agent, agent_ref: helper,
       prompt_template: "Plan {{inputs.topic}}, {{ctx.style}}"}
    - {id: left, type: agent, agent_ref: helper, prompt_template: "Left {{run.outputs.plan}}"}
    - {id: right, type: agent, agent_ref: helper, prompt_template: "Right", tools: [read_file]}
    - {id: output, type: output}
  edges:
    - {from: input, to: plan}
    - {from: plan, to: left}
    - {from: plan, to: right}
    - {from: left, to: output}
    - {from: right, to: output}
"""


def flow(world: World, *words: str, code: int = 0) -> Ended:
    ended = world.run("flow", *words)
    assert ended.code == code, (words, ended.out, ended.err)
    return ended


def until(is_so: Callable[[], bool]) -> None:
    """Wait until `is_so` is true; fail when it takes too long."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def prompts(workflow: Workflow) -> list[str]:
    return [n.prompt_template or "" for n in workflow.nodes if isinstance(n, AgentNode)]


def said_to(world: World, id: str, role: str) -> list[str]:
    """The messages that the agent of a conversation received."""
    transcript = flow(world, "show", id, "--role", role, "--json").json["transcriptHistory"]
    return [each["content"] for each in transcript if each["role"] == "user"]


@pytest.fixture
def trip(world: World) -> World:
    """A folder with a document."""
    (world.folder / "trip.yaml").write_text(DOCUMENT)
    return world


@pytest.mark.parametrize("dialect", ["perdure", "relavium"])
def test_workflow_exported_from_a_session_sends_the_same_prompts(
    world: World, dialect: str
) -> None:
    world.ok("import", str(SAMPLE))
    world.ok("export", SAMPLE_ID, "--format", "workflow", "--dialect", dialect, "-o", "w.yaml")
    refused = flow(world, "validate", "w.yaml", code=2).out
    assert "w.yaml: 1 error" in refused
    assert "run the workflow with `-m MODEL`" in refused
    ran = flow(world, "run", "w.yaml", "-m", "scripted:echo", "--id", "again", "--json")
    assert "agent 'exported-agent' is made for this run, with scripted:echo" in ran.err
    told = ran.json
    assert told["status"] == "completed"
    assert "commit message" in told["outputs"]["output"]
    words = prompts(parse((world.folder / "w.yaml").read_text()))
    assert len(words) == 4
    assert said_to(world, "again", "exported-agent") == words


def test_placeholder_typed_in_an_exported_chat_is_not_expanded(
    world: World,
) -> None:
    world.ok("chat", "-p", f"Say {OPENER}", "--json")
    session = json.loads(world.ok("sessions", "list", "--json").out)[0]["id"]
    world.ok("export", session, "--format", "workflow", "-o", ".")
    name = f"{session}.workflow.yaml"
    flow(world, "validate", name)
    said = OPENER.replace("{{", "{ {")
    told = flow(world, "run", name, "--id", "f", "--input", f"message={OPENER}", "--json").json
    assert told["status"] == "completed"
    (prompt,) = said_to(world, "f", "assistant")
    assert prompt == f"Say {said}\n\n## Input `message`\n```\n{OPENER}\n```"


async def _spoken(world: World) -> None:
    """Run a session of an agent with a budget, a fallback, limits, a variable and a secret."""
    agent = Agent(
        "shop",
        model="scripted:echo",
        instructions="Sell {{ctx.shop}} with {{secrets.KEY}}.",
        fallbacks=[Fallback("openai:gpt-5", 2)],
        max_cost_microcents=100_000_000,
        on_exceed="warn",
        limits=Limits(max_turns=7),
    )
    place = Workspace(working_dir=str(world.folder), variables={"shop": "tea {{ctx.x}}"})
    async with (
        perdure.open(f"sqlite:///{world.file}") as store,
        Runtime(store, [agent]) as runtime,
    ):
        chat = await runtime.start(agent, workspace=place, id="spoken")
        await chat.send("What do you sell?")


@pytest.mark.parametrize("dialect", ["perdure", "relavium"])
def test_workflow_exported_from_a_session_with_variables_can_be_run(
    world: World, dialect: str
) -> None:
    asyncio.run(_spoken(world))
    words = ("export", "spoken", "--format", "workflow", "--dialect", dialect, "-o", "w.yaml")
    told = world.ok(*words)
    assert ("does not hold: limits, budget" in told.err) == (dialect == "relavium")
    assert "{{secrets.KEY}}: secrets are never filled in" in told.err
    (agent,) = parse((world.folder / "w.yaml").read_text()).agents
    assert agent["fallback_chain"] == [{"max_attempts": 2, "model": "gpt-5", "provider": "openai"}]
    if dialect == "perdure":
        assert agent["budget"] == {"max_cost_microcents": 100_000_000, "on_exceed": "warn"}
        assert cast("dict[str, object]", agent["limits"])["max_turns"] == 7
    assert "{{secrets.KEY}}" in flow(world, "validate", "w.yaml").err
    assert len(flow(world, "validate", "w.yaml", "--json").json["warnings"]) == 1
    ran = flow(world, "run", "w.yaml", "-m", "scripted:echo", "--id", "again", "--json")
    assert ran.json["status"] == "completed"
    (session,) = world.ok("sessions", "list", "--all", "--query", "again", "--json").json
    prompt = world.ok("sessions", "context", session["id"], "--json").json["system"]
    assert prompt == "Sell tea { {ctx.x}} with {{secrets.KEY}}."
    shown = world.ok("sessions", "show", "spoken", "--json").json["exports"]
    assert [(each["path"], each["dialect"]) for each in shown] == [
        (str(world.folder / "w.yaml"), dialect)
    ]
    # A long line is cut to the width of the terminal.
    facts = [line.split() for line in world.ok("sessions", "show", "spoken").out.splitlines()]
    assert any(fact[:1] == ["exported"] and fact[1].startswith("/") for fact in facts)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("Be short.", "In {{ctx.nope}}.", "use {{ctx.nope}}"),
        ("{{inputs.days}} days", "{{run.id | read_file}}", "cannot be read"),
        ("{{inputs.days}} days", "AKIAIOSFODNN7EXAMPLE", "ctx.style"),
        ("default: 3", "default: 99999999999999999999", "has to be a number"),
    ],
)
def test_validate_and_run_commands_report_the_same_errors(
    trip: World, old: str, new: str, fault: str
) -> None:
    file = trip.folder / "trip.yaml"
    file.write_text(DOCUMENT.replace(old, new))
    assert fault in flow(trip, "validate", "trip.yaml", code=2).out
    assert fault in flow(trip, "run", "trip.yaml", "--input", "topic=x", code=2).err


def test_validate_command_reports_the_line_of_each_unknown_name(
    trip: World,
) -> None:
    file = trip.folder / "trip.yaml"
    helper = '"Be short."'
    block = (
        "|\n        In {{ctx.nope}}.\n        With {{ctx.gone}}, {{ctx.style}}, {{ctx.selection}}."
    )
    text = DOCUMENT.replace("{{ctx.style}}", "{{ctx.stile}}").replace(helper, '"Use {{ctx.nope}}"')
    file.write_text(text)
    lines = text.splitlines()
    at = 1 + next(number for number, line in enumerate(lines) if "helper, model" in line)
    told = flow(trip, "validate", "trip.yaml", "--json", code=2).json["faults"]
    assert len(told) == 2
    assert told[0].startswith(f"line {at}: the instructions of agent 'helper' use {{{{ctx.nope}}}}")
    assert "there is: active_file, git_ref, selection, style, working_dir" in told[0]
    assert "there is no ctx.stile" in told[1]
    fields = ("model: echo", "provider: scripted", "tools: [read_file]", f"system_prompt: {block}")
    spread = "\n      ".join(("- id: helper", *fields)) + "\n"
    old = next(line for line in DOCUMENT.splitlines() if "helper, model" in line)
    file.write_text(DOCUMENT.replace(old.lstrip() + "\n", spread))
    told = flow(trip, "validate", "trip.yaml", "--json", code=2).json["faults"]
    assert [fault.split(":")[0] for fault in told] == [f"line {at + 4}"] * 2
    assert "{{ctx.nope}}" in told[0]
    assert "{{ctx.gone}}" in told[1]
    folder = trip.folder / ".config" / "perdure" / "agents"
    folder.mkdir(parents=True)
    (folder / "helper.agent.yaml").write_text(
        "id: helper\nmodel: scripted:echo\nsystem_prompt: In {{ctx.where}}.\ntools: [read_file]\n"
    )
    bare = DOCUMENT.replace(f"{old}\n", "").replace("  agents:\n", "")
    file.write_text(bare)
    node = 1 + next(number for number, line in enumerate(bare.splitlines()) if "plan," in line)
    (fault,) = flow(trip, "validate", "trip.yaml", "--json", code=2).json["faults"]
    assert fault.startswith(
        f"line {node}: the instructions of agent 'helper' use {{{{ctx.where}}}}"
    )


def test_validate_command_warns_of_a_node_that_needs_an_input(trip: World) -> None:
    file = trip.folder / "trip.yaml"
    bare = DOCUMENT.replace(
        """
    - {name: topic, required: true, description: What it is about}
    - {name: days, type: number, default: 3}""",
        " []",
    )
    bare = bare.replace(
        """,
       prompt_template: "Plan {{inputs.topic}}, {{ctx.style}}"}""",
        "}",
    )
    file.write_text(bare.replace("{{inputs.days}} days", "days"))
    (warning,) = flow(trip, "validate", "trip.yaml", "--json").json["warnings"]
    assert "'plan' has no prompt_template and would be told nothing" in warning
    assert "would be told nothing" in flow(trip, "run", "trip.yaml", code=2).err
    flow(trip, "run", "trip.yaml", "--input", "message=x")


def test_workflow_document_is_validated_and_drawn(trip: World) -> None:
    drawn = flow(trip, "validate", "trip.yaml").out
    assert "plan    helper" in drawn
    assert "left    helper_2" in drawn
    assert flow(trip, "graph", "trip.yaml", "--format", "mermaid").out.startswith("flowchart")


def test_all_errors_of_document_are_reported_with_lines(trip: World) -> None:
    file = trip.folder / "trip.yaml"
    text = file.read_text()
    broken = text.replace("{{ctx.style}}", "{{ctx.stile}}").replace('"Right"', '"{{x}}"')
    file.write_text(
        broken.replace(
            "tools: [read_file]}\n    - {id: output", "tools: [sell]}\n    - {id: output"
        )
    )
    told = flow(trip, "validate", "trip.yaml", "--json", code=2).json
    lines = [fault.partition(":")[0] for fault in told["faults"]]
    assert lines == ["line 14", "line 16", "line 16"]
    assert (
        flow(trip, "run", "trip.yaml", "--input", "topic=x", "--json", code=2).error["code"]
        == "invalid_workflow"
    )
    file.write_text(text)
    error = flow(
        trip, "run", "trip.yaml", "--input", "day=x", "--input", "days=many", "--json", code=2
    ).error
    assert error["code"] == "config_error"
    for part in (
        "no input 'day'",
        "line 5: the input 'topic'",
        "line 6: the input 'days' has to be a number",
    ):
        assert part in error["message"]
    flow(trip, "run", "trip.yaml", "--input", "topic", code=2)
    flow(trip, "run", "trip.yaml", "--input", "topic=x", "--role", "helper model=a:b", code=2)
    assert flow(trip, "list", "--json").json == []


def test_flow_commands_accept_the_run_of_a_workflow_document(trip: World) -> None:
    ran = flow(trip, "run", "trip.yaml", "--input", "topic=tides", "--id", "f", "--watch")
    assert "plan active" in ran.out
    assert said_to(trip, "f", "helper") == ["Plan tides, 3 days"]
    shown = flow(trip, "show", "f").out
    assert "✓ right" in shown
    assert '"left": "offline scripted model' in shown
    state = flow(trip, "show", "f", "--json").json
    assert state["status"] == "completed"
    assert set(state["outputs"]["output"]) == {"left", "right"}
    assert flow(trip, "list", "--json").json[0]["status"] == "completed"
    assert json.loads(trip.ok("sessions", "list", "--json").out) == []
    flow(trip, "export", "f", "-o", "out")
    exported = trip.folder / "out" / "record" / "workflow.yaml"
    assert parse(exported.read_text()) == parse(DOCUMENT)
    again = flow(trip, "run", str(exported), "--input", "topic=tides", "--id", "g", "--json").json
    assert again["outputs"] == state["outputs"]
    assert "start the document again" in trip.run("import", "out", "--format", "a-society").err
    record = str(trip.folder / ".perdure" / "records" / "f")
    deleted = {"flow": "f", "sessions": 3, "record_left": record}
    assert flow(trip, "delete", "f", "--yes", "--json").json == deleted


def test_killed_and_stopped_workflow_run_can_be_completed(
    trip: World,
) -> None:
    acted = trip.scenario(
        "name: s\nrules:\n"
        "  - {when: {user_contains: go on}, text: To the right after all.}\n"
        "  - {when: {user_contains: right}, steps: [{text: To the}, hang]}\n"
        "  - {when: {user_contains: left}, text: To the left.}\n"
        "  - {when: {user_contains: plan}, text: Planned.}\n"
    )
    words = ("run", "trip.yaml", "--input", "topic=x", "--scenario", acted, "--id", "f")
    with trip.fork("flow", *words) as running:
        until(lambda: "outputs/left.md" in trip.run("flow", "show", "f", "--json").out)
        running.kill()
        assert running.ended().code == -signal.SIGKILL
    with trip.fork("flow", "resume", "f", "--scenario", acted) as resumed:
        until(lambda: '"runningNodes":["right"]' in trip.run("flow", "show", "f", "--json").out)
        flow(trip, "stop", "f", "right")
        assert resumed.ended().code == 1
    (waiting,) = json.loads(trip.ok("inbox", "list", "--json").out)
    assert (waiting["session"], waiting["about"]) == ("f", "right")
    flow(trip, "reply", "f", "go on")
    assert "was said when it began" in flow(trip, "resume", "f", "-m", "scripted:echo", code=2).err
    told = flow(trip, "resume", "f", "--scenario", acted, "--json").json
    assert told["outputs"] == {
        "output": {"left": "To the left.", "right": "To the right after all."}
    }


def test_workflow_of_roles_accepts_no_inputs(world: World) -> None:
    flow(world, "init")
    assert "--input" in flow(world, "run", "workflow.yaml", "--input", "a=b", code=2).err


def test_document_can_use_an_agent_from_an_agent_file(trip: World) -> None:
    file = trip.folder / "trip.yaml"
    text = file.read_text()
    start = text.index("  agents:")
    file.write_text(text[:start] + text[text.index("  nodes:") :])
    folder = trip.folder / ".config" / "perdure" / "agents"
    folder.mkdir(parents=True)
    (folder / "helper.agent.yaml").write_text(
        "id: helper\nmodel: scripted:echo\nsystem_prompt: Be short.\ntools: [read_file]\n"
    )
    told = flow(trip, "run", "trip.yaml", "--input", "topic=tides", "--json").json
    assert told["status"] == "completed"


@pytest.mark.parametrize("folder", ["pi", "claude-code"])
def test_exported_sessions_of_other_programs_run_with_the_same_prompts(
    world: World, recordings: Path, folder: Literal["pi", "claude-code"]
) -> None:
    found = sorted((recordings / folder).glob("*.jsonl"), key=lambda file: file.stat().st_size)
    assert found
    for file in found[1:4]:
        imported = json.loads(world.ok("import", str(file), "--json").out.splitlines()[0])
        session = imported["session"]
        world.ok("export", session, "--format", "workflow", "-o", f"{session}.yaml")
        words = prompts(parse((world.folder / f"{session}.yaml").read_text()))
        told = flow(
            world, "run", f"{session}.yaml", "-m", "scripted:echo", "--id", f"f-{session}", "--json"
        ).json
        assert told["status"] == "completed"
        assert said_to(world, f"f-{session}", "exported-agent") == words
