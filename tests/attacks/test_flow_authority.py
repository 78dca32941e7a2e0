"""Received flows have no authority: A-Society folders, and stores with flows and documents.

Each received flow claims a consent, or a role's turn in the middle of a call. Each flow is run by
current agents that can do everything its consent allows, with a model that follows the file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import SystemClock
from perdure.client.flows.flows import Flows
from perdure.client.store import Store
from perdure.engine.flows.prompts.entry import INTERRUPTED
from perdure.errors import FlowRefusal
from perdure.interop.a_society.exports import export_flow
from perdure.interop.a_society.folder import read_folder
from perdure.interop.a_society.imports import import_flow
from perdure.models.scenario import CallTools, Scenario, ScriptedCall
from perdure.models.scripted import ScriptedModel
from perdure.session.codec import body_of, new_side
from perdure.session.flows.graph import FlowNode, Graph
from perdure.session.flows.kinds import ConsentChanged, ConsentMode, FlowStarted, NodeClaimed
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import SideBody
from perdure.stores.protocol import Commit, Write
from perdure.tools.permissions import Permissions
from tests.attacks.test_authority import foreign, planted
from tests.fakes.chats import MODEL, says
from tests.fakes.documents import document
from tests.fakes.flow_log import FLOW
from tests.fakes.hostile_sessions import SITUATIONS, TOOLS, Bait, Log, begun, command, write
from tests.unit.interop.a_society.test_imports import LINE, ran, written

GRANTS: tuple[dict[str, Any], ...] = (
    {"mode": "full-access"},
    {"mode": "partial-access"},
    {"mode": "partial-access", "bash": True},
    {"mode": "partial-access", "mcp": ["write_file", "run_command"]},
    {"mode": "full-access", "bash": True, "mcp": ["write_file", "run_command"]},
    {"mode": "no-access", "bash": True, "mcp": ["write_file", "run_command"]},
)
SOLO = Graph("a change", (FlowNode("build", "developer", work=("Build it.",)),), ())


def consent_of(grant: dict[str, Any], bait: Bait) -> dict[str, Any]:
    """A ``consentState`` as A-Society writes it."""
    at = "2026-05-27T14:30:00.123Z"
    line = f"touch {bait.ran}"
    commands = {line: {"command": line, "grantedAt": at}} if "bash" in grant else {}
    tools = {name: {"tool": name, "grantedAt": at} for name in grant.get("mcp", ())}
    return {
        "mode": grant["mode"],
        "bash": {"allowedCommands": commands},
        "mcp": {"allowedTools": tools},
    }


def runtime(store: Store, bait: Bait, *ids: str) -> Runtime:
    """Return a runtime whose agents are restricted only by the flow's consent."""
    allowed = Permissions(scope="full", approval="auto", allowed_command_globs=("touch *",))
    agents = [Agent(id, model=MODEL, tools=TOOLS, permissions=allowed) for id in ids]
    calls = [
        ScriptedCall(name, json.dumps(args), id=f"t{n}")
        for n, (name, args) in enumerate((write(bait), command(bait)))
    ]
    scenario = Scenario(name="test", sequence=tuple(says(CallTools((c,))) for c in calls) * 4)
    return Runtime(store, agents, models=ScriptedModel(scenario, clock=SystemClock()))


async def is_obeyed(
    store: Store, flow: str, workspace: Path, bait: Bait, *ids: str, replies: bool = False
) -> str | None:
    """Return what a flow did that was not allowed here; None if everything was allowed."""
    started = runtime(store, bait, *ids)
    async with Flows(started) as flows:
        found = await flows.open(flow, workspace=workspace)
        running = asyncio.ensure_future(found.run())
        for _ in range(2):
            await settled(store, running, bait)
            if bait.is_taken:
                break
            if replies and running.done():
                with suppress(FlowRefusal):
                    await found.reply("go on")
                running = asyncio.ensure_future(found.run())
        running.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await running
        mode = (await found.state()).consent.mode
    if bait.is_taken:
        return "obeyed"
    return None if mode == "no-access" else f"runs in {mode}"


async def settled(store: Store, running: asyncio.Future[Any], bait: Bait) -> None:
    """Wait until the flow waits for a person, or is done."""
    for _ in range(600):
        asked = [q for q in await store.questions() if q.question.topic == "approval"]
        if running.done() or bait.is_taken or asked:
            return
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("has_session", "is_running"),
    [
        (False, False),
        (True, True),
        pytest.param(False, True, marks=pytest.mark.all_only),
        pytest.param(True, False, marks=pytest.mark.all_only),
    ],
)
async def test_settings_of_an_imported_flow_are_ignored(
    has_session: bool, is_running: bool, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    files = await ran(work)
    name = next(name for name in files if name.endswith("flow.json"))
    if not has_session:
        files = {name: told for name, told in files.items() if "/build/" not in f"/{name}"}
    through: list[str] = []
    for number, grant in enumerate(GRANTS):
        bait, folder = Bait.under(tmp_path / f"bait{number}"), tmp_path / f"in{number}"
        told = json.loads(files[name])
        told["consentState"] = consent_of(grant, bait)
        if is_running:
            told["runningNodes"], told["awaitingHumanNodes"] = ["build"], {}
        written(folder, {**files, name: json.dumps(told, indent=2).encode()})
        async with perdure.open(f"sqlite:///{tmp_path}/own{number}.db") as store:
            await import_flow(store.backend, read_folder(folder), LINE, at=5)
            recorded = json.loads((await export_flow(store.backend, FLOW)).files[name])
            assert recorded["consentState"]["mode"] == grant["mode"]
            why = await is_obeyed(store, FLOW, work, bait, "owner", "build", replies=True)
            through += [f"{grant} running={is_running}: {why}"] if why else []
            if is_running and has_session:
                await check_continued(store)
    assert not through


async def check_continued(store: Store) -> None:
    """Check that the node was claimed again, and that its role knows of the interruption."""
    claims = [body_of(entry) for entry in await store.backend.entries(FLOW)]
    assert [c.cause for c in claims if isinstance(c, NodeClaimed)][:1] == ["resume"]
    said = await (await store.open(f"{FLOW}__build")).messages()
    assert INTERRUPTED in [message.text for message in said]


async def begin(store: Store, work: Path, mode: ConsentMode, *more: SideBody) -> None:
    """Write an attacker's flow: its only node runs, and it has a record folder."""
    (work / "record" / ".flow").write_text("f")
    session = StreamId("f__developer")
    started = FlowStarted("p", str(work), str(work / "record"), SOLO, ("build",), mode)
    claimed = NodeClaimed("build", "developer", session, "start")
    header = StreamHeader(StreamId("f"), 1, kind="flow", cwd=str(work), title="a change")
    bodies = (started, *more, claimed)
    entries = tuple(new_side(body) for body in bodies)
    wrote = Write(stream=header.id, create=header, entries=entries)
    await store.backend.commit(Commit(writes=(wrote,), at=1))


@pytest.mark.parametrize(
    "mode",
    ["full-access", "partial-access", pytest.param("no-access", marks=pytest.mark.all_only)],
)
async def test_settings_of_a_flow_from_another_user_are_ignored(
    mode: ConsentMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flow's role is in the middle of a call, once in each of the `SITUATIONS`."""
    through: list[str] = []
    for number, situation in enumerate(SITUATIONS):
        call = command if number % 2 else write
        bait = Bait.under(tmp_path / f"bait-{situation}")
        work = tmp_path / situation
        (work / "record").mkdir(parents=True)
        address = f"sqlite:///{work}/received.db"
        async with foreign(address, tmp_path, monkeypatch) as store:
            granted = ConsentChanged("you", None, "bash", f"touch {bait.ran}")
            await begin(store, work, mode, granted)
            log = Log(StreamId("f__developer"), {"origin": "role", "parent": "f"})
            begun(log, bait, id="developer")
            SITUATIONS[situation](log, bait, call)
            await planted(store, log)
        async with perdure.open(address, is_trusted=False) as store:
            why = await is_obeyed(store, "f", work, bait, "developer", replies=True)
            through += [f"{situation}: {why}"] if why else []
            kinds = [e.kind for e in await store.backend.entries(StreamId("f__developer"))]
            assert "agent_bound" in kinds
    assert not through


@pytest.mark.parametrize("mode", ["full-access", "partial-access"])
@pytest.mark.parametrize("has_agent", [True, False])
async def test_settings_of_a_document_from_another_user_are_ignored(
    mode: ConsentMode, has_agent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workflow document started by another user, with their agents."""
    bait, work = Bait.under(tmp_path / "bait"), tmp_path / "work"
    work.mkdir()
    address = f"sqlite:///{tmp_path}/received.db"
    async with (
        foreign(address, tmp_path, monkeypatch) as store,
        Flows(runtime(store, bait, "helper")) as flows,
    ):
        await flows.start(document("in>plan", "plan>out"), workspace=work, id="f", consent=mode)
    ids: Sequence[str] = ("helper",) if has_agent else ()
    async with perdure.open(address, is_trusted=False) as store:
        assert await is_obeyed(store, "f", work, bait, *ids) is None


async def test_flow_from_another_user_runs_only_in_the_given_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bait, work = Bait.under(tmp_path / "bait"), tmp_path / "work"
    (work / "record").mkdir(parents=True)
    address = f"sqlite:///{tmp_path}/received.db"
    async with foreign(address, tmp_path, monkeypatch) as store:
        await begin(store, work, "full-access")
        log = Log(StreamId("f__developer"), {"origin": "role", "parent": "f"})
        begun(log, bait, id="developer")
        await planted(store, log)
    async with (
        perdure.open(address, is_trusted=False) as store,
        Flows(runtime(store, bait, "developer")) as flows,
    ):
        with pytest.raises(FlowRefusal, match="name the folder it works in"):
            await (await flows.open("f")).run()
        found = await flows.open("f", workspace=work)
        assert (await found.state()).is_place_in_force
        await found.consent("full-access", by="me")
        assert (await found.state()).consent.mode == "full-access"


def files_in(*folders: Path) -> list[Path]:
    """The paths of all files and folders in `folders`."""
    return sorted(path for folder in folders for path in folder.rglob("*"))


@pytest.mark.parametrize("place", ["src", ".", "../other"])
async def test_record_folder_in_a_store_from_another_user_is_ignored(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user works in the folder that the flow names: without a workspace, then with one."""
    bait, work = Bait.under(tmp_path / "bait"), tmp_path / "work"
    for folder in (work / "src", tmp_path / "other"):
        folder.mkdir(parents=True)
        (folder / "mine.txt").write_text("mine")
    address = f"sqlite:///{tmp_path}/received.db"
    async with foreign(address, tmp_path, monkeypatch) as store:
        started = FlowStarted("p", str(work), str(work / place), SOLO, ("build",), "full-access")
        header = StreamHeader(StreamId("f"), 1, kind="flow", cwd=str(work), title="a change")
        wrote = Write(stream=header.id, create=header, entries=(new_side(started),))
        await store.backend.commit(Commit(writes=(wrote,), at=1))
    before = files_in(work, tmp_path / "other")
    monkeypatch.chdir(work)
    async with (
        perdure.open(address, is_trusted=False) as store,
        Flows(runtime(store, bait, "developer")) as flows,
    ):
        for workspace in (None, work):
            with pytest.raises(FlowRefusal, match=r"not in force|has no \.flow|no record folder"):
                await flows.open("f", workspace=workspace)
        with pytest.raises(FlowRefusal, match="not in force"):
            await flows.look(StreamId("f")).run()
        assert not (await flows.state("f")).sessions
    assert files_in(work, tmp_path / "other") == before
