"""The sessions of roles on the command line: erased, compacted, used in a chat, and their costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perdure
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.kinds import Compaction
from perdure.session.ledger import ModelCalled
from perdure.session.notes import AgentBound
from tests.acceptance.cli.conftest import Ended, World
from tests.acceptance.flows.test_commands import ALLOWED, FIRST, flow
from tests.acceptance.flows.test_consent import ASKS_FIRST, RUN, WORKFLOW

OTHER = """\
name: other
rules:
  - when: {asks_summary: true}
    steps: [{text: I planned the change and handed it over; nothing is open any more now.}]
"""


@pytest.fixture
def project(world: World) -> World:
    """A project whose flow waits for a person in its owner's first turn."""
    flow(world, "init")
    return world


async def summary_models(world: World, role: str) -> list[str]:
    """The models that were called for summaries in the session of `role`."""
    async with perdure.open(f"sqlite:///{world.file}") as store:
        entries = await store.backend.entries((await store.open(f"f__{role}")).id)
    bodies = [body_of(entry) for entry in entries]
    assert sum(isinstance(body, Compaction) for body in bodies) >= 1
    calls = [body for body in bodies if isinstance(body, ModelCalled)]
    return [call.model for call in calls if call.purpose == "summary"]


async def test_model_used_for_a_compaction_does_not_become_the_role_model(
    project: World,
) -> None:
    flow(project, "run", *ALLOWED, code=1)
    other = project.scenario(OTHER, "other")
    compact = ("compact", "f", "developer")
    told = flow(project, *compact, "-m", "nowhere:gpt", code=2).err
    assert "unknown model provider 'nowhere'" in told
    flow(project, *compact, "-m", "bad", code=2)
    flow(project, *compact, "--scenario", other)
    assert await summary_models(project, "developer") == ["scripted:other"]
    flow(project, "compact", "f", "owner", "-m", "scripted:echo")
    assert await summary_models(project, "owner") == ["scripted:echo"]
    project.ok("sessions", "compact", "f__reviewer", "-m", "scripted:echo")
    assert await summary_models(project, "reviewer") == ["scripted:echo"]
    async with perdure.open(f"sqlite:///{project.file}") as store:
        for role in ("developer", "owner", "reviewer"):
            window = await (await store.open(f"f__{role}")).context()
            assert window.model == "scripted:first-flow"
        settings = (await perdure.Flows(perdure.Runtime(store)).state("f")).settings
    assert settings is not None
    assert (settings.model, Path(settings.scenario or "").name) == (None, "scenario.yaml")
    flow(project, "improve", "f", "none")
    flow(project, "resume", "f")


def test_flow_continues_without_a_role_whose_session_was_erased(
    project: World,
) -> None:
    flow(project, "run", *ALLOWED, code=1)
    project.ok("sessions", "erase", "f__developer", "--yes")
    shown = flow(project, "show", "f").out
    assert "developer: its session f__developer was erased, so it cannot continue" in shown
    lost = flow(project, "show", "f", "--json").json["lostRoles"]
    assert list(lost) == ["developer"]
    flow(project, "improve", "f", "parallel")
    told = flow(project, "resume", "f", "--allow-command", "ls", "--json", code=1).json
    assert list(told["lostRoles"]) == ["developer"]
    assert not any("erased" in each["text"] for each in told["waiting"])
    assert "--to developer" not in flow(project, "show", "f").out
    before = flow(project, "show", "f", "--json").json
    refused = flow(project, "reply", "f", "--to", "developer", "go on", code=4).err
    assert "developer: its session f__developer was erased, so it cannot continue" in refused
    assert "says what it waits for" not in refused
    assert flow(project, "show", "f", "--json").json == before
    ended = flow(project, "resume", "f", code=1)
    assert "its session f__developer was erased" in ended.out
    for words in (("show", "f", "--role", "developer"), ("list",), ("export", "f", "-o", "out")):
        flow(project, *words)
    assert "erased" in flow(project, "compact", "f", "developer", code=3).err
    flow(project, "delete", "f", "--yes")


def test_chat_and_end_commands_reject_a_flow_id(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    before = flow(project, "show", "f", "--json").json
    for words in (
        ("chat", "--session", "f", "-m", "scripted:echo", "-p", "hi"),
        ("sessions", "end", "f"),
    ):
        refused = project.run(*words)
        assert (refused.code, "it is a flow and no session" in refused.err) == (4, True), (
            refused.err
        )
    assert project.ok("sessions", "show", "f", "--json").json["turns"] == 0
    assert flow(project, "show", "f", "--json").json == before


async def test_flow_without_one_of_its_role_sessions_can_still_be_exported(project: World) -> None:
    flow(project, "run", *ALLOWED, code=1)
    async with perdure.open(f"sqlite:///{project.file}") as store:
        assert await store.backend.retention.remove(StreamId("f__developer"))
    flow(project, "consent", "f", "full-access")
    assert flow(project, "show", "f", "--json").json["consentState"]["mode"] == "full-access"
    flow(project, "export", "f", "-o", "out")
    kept = (project.folder / "out" / "roles" / "developer" / "transcript.json").read_text()
    assert json.loads(kept)["transcriptHistory"] == []


async def test_flow_deletion_keeps_a_new_session_with_a_reused_id(
    project: World,
) -> None:
    flow(project, "run", *ALLOWED, code=1)
    async with perdure.open(f"sqlite:///{project.file}") as store:
        assert await store.backend.retention.remove(StreamId("f__developer"))
        await (await store.create(id="f__developer")).append(perdure.user("mine"))
    assert "and 2 sessions" in flow(project, "delete", "f", "--yes").out
    assert [each["id"] for each in project.ok("sessions", "list", "--all", "--json").json] == [
        "f__developer"
    ]


def test_reply_to_a_question_of_an_erased_role_is_refused(world: World) -> None:
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    (world.folder / "scenario.yaml").write_text(ASKS_FIRST)
    flow(world, *RUN, code=1)
    (asked,) = flow(world, "show", "f", "--json").json["awaitingHumanNodes"]
    question = world.ok("inbox", "--json").json[0]["id"]
    world.ok("sessions", "erase", "f__owner", "--yes")
    assert "Waiting for you" not in flow(world, "show", "f").out
    assert world.ok("inbox", "--json").json == []
    for words in (("reply", "f", "now"), ("reply", "f", "now", "--to", asked)):
        assert "session f__owner was erased" in flow(world, *words, code=4).err
    refused = world.run("inbox", "answer", question, "now")
    assert (refused.code, "session f__owner was erased" in refused.err) == (4, True), refused.err
    assert flow(world, "show", "f", "--json").json["pendingHumanInputs"] == {}


async def test_resume_with_a_model_replaces_the_models_of_started_roles(world: World) -> None:
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    (world.folder / "scenario.yaml").write_text(ASKS_FIRST)
    flow(world, *RUN, code=1)
    before = flow(world, "show", "f", "--json").json
    for words in (("-m", "opnai:x"), ("--offer", "opnai:x")):
        told = flow(world, "resume", "f", *words, code=2).err
        assert "unknown model provider 'opnai'; available: " in told
    assert flow(world, "show", "f", "--json").json == before
    flow(world, "resume", "f", "-m", "scripted:echo", code=1)
    for command in ("show", "context"):
        shown = world.ok("sessions", command, "f__owner", "--json").json
        assert shown["model"] == "scripted:echo"
    flow(world, "compact", "f", "owner")
    flow(world, "compact", "f", "owner")  # and it keeps what is bound to it
    flow(world, "reply", "f", "now")
    flow(world, "resume", "f", code=1)
    async with perdure.open(f"sqlite:///{world.file}") as store:
        entries = await store.backend.entries((await store.open("f__owner")).id)
    models = [b.model for entry in entries if isinstance(b := body_of(entry), ModelCalled)]
    assert models[:1] == ["scripted:s"]
    assert {*models[1:]} == {"scripted:echo"}
    assert not [entry for entry in entries if entry.kind == AgentBound.kind]


def test_new_flow_with_an_unknown_provider_is_not_stored(
    world: World,
) -> None:
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    for words in (
        ("-m", "opnai:x"),
        ("--offer", "opnai:x", "--configure", "ask"),
        ("-m", "scripted:echo", "--role", "owner model=opnai:x"),
    ):
        told = flow(world, "run", "workflow.yaml", *words, code=2).err
        assert "unknown model provider 'opnai'; available: anthropic, " in told
    assert not world.file.exists()
    assert not (world.folder / ".perdure").exists()


def test_error_for_a_command_on_a_role_session_contains_the_flow_id(
    project: World,
) -> None:
    flow(project, "run", *FIRST, code=1)  # the owner waits for consent, in an open turn
    refused: dict[tuple[str, ...], str] = {
        ("chat", "--session", "f__owner", "-p", "hi"): 'flow reply f --to owner "..."',
        ("sessions", "end", "f__owner"): "flow stop f owner",
        ("sessions", "branch", "f__owner", "3"): "sessions fork f__owner",
        ("sessions", "branch", "f__owner", "3", "--summarize"): "sessions fork f__owner",
        ("sessions", "abandon", "f__owner"): "flow resume f",
        ("sessions", "compact", "f__owner"): "flow stop f ",
        ("flow", "compact", "f", "owner"): "flow stop f ",
    }
    before = project.ok("sessions", "show", "f__owner", "--json").json["entries"]
    for words, instead in refused.items():
        ended = project.run(*words)
        assert (ended.code, "perdure " + instead in ended.err) == (4, True), (words, ended.err)
        assert "perdure chat" not in ended.err
    assert project.ok("sessions", "show", "f__owner", "--json").json["entries"] == before
    fork = project.ok("sessions", "fork", "f__owner", "--json").json["session"]
    project.ok("chat", "--session", fork, "-p", "hi", "-m", "scripted:echo")
    flow(project, "consent", "f", "partial-access")
    flow(project, "resume", "f", code=1)
    flow(project, "improve", "f", "none")
    flow(project, "resume", "f")
    project.ok("sessions", "end", "f__owner")  # a flow that is completed has nothing to lose
    project.ok("chat", "--session", "f__owner", "-p", "hi", "-m", "scripted:echo")


def unpriced(ended: Ended) -> int:
    return ended.err.count("the price of scripted:first-flow is unknown, so the limit of $1.00")


def test_flow_warns_once_of_a_model_without_a_price(project: World) -> None:
    settings = project.folder / ".config" / "perdure" / "config.toml"
    settings.parent.mkdir(parents=True)
    run = (*FIRST, "--consent", "full-access")
    settings.write_text('[chat]\nmax_cost_microcents = 100_000_000\non_exceed = "warn"\n')
    ended = flow(project, "run", *run, code=1)
    assert unpriced(ended) == 1
    assert "[models.prices]" in ended.err
    assert unpriced(flow(project, "resume", "f", code=1)) == 1
    assert unpriced(flow(project, "show", "f")) == 0
    assert unpriced(flow(project, "improve", "f", "none")) == 0
    price = '[models.prices."scripted:first-flow"]\ninput = 1.0\noutput = 1.0\n'
    settings.write_text(settings.read_text() + price)
    assert unpriced(flow(project, "resume", "f")) == 0
