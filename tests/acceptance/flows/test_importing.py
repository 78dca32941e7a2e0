"""Messages of `perdure import` about folders of flows that it does not import."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import World
from tests.acceptance.flows.test_consent import RUN, SCENARIO, WORKFLOW, flow


@pytest.fixture
def exported(world: World) -> Path:
    """A state folder with one exported flow, which is in the store too."""
    (world.folder / "workflow.yaml").write_text(WORKFLOW)
    (world.folder / "scenario.yaml").write_text(SCENARIO)
    flow(world, *RUN, code=1)
    flow(world, "export", "f", "-o", "state/one")
    return world.folder / "state" / "one"


def test_import_of_a_flow_without_format_suggests_the_format_option(
    world: World, exported: Path
) -> None:
    for path in ("state/one", "state"):
        ended = world.run("import", path)
        assert (ended.code, ended.out) == (3, "")
        assert "it holds flows: add --format a-society" in ended.err
    ended = world.run("import", "state/one/flow.json")
    assert ended.code == 2
    assert "`perdure import state/one --format a-society`" in ended.err
    (world.folder / "empty").mkdir()
    assert "a-society" not in world.run("import", "empty").err


def test_import_reports_each_skipped_flow_folder_once(world: World, exported: Path) -> None:
    for name, file, text in (
        ("two", "flow.json", "{}"),
        ("three", "flow.json", "{}"),
        ("four", "record/workflow.yaml", "nodes: 1"),
    ):
        flow(world, "export", "f", "-o", f"state/{name}")
        (world.folder / "state" / name / file).write_text(text)
    ended = world.run("import", "state", "--format", "a-society")
    told = ended.err.splitlines()
    assert (ended.code, ended.out, len(told)) == (1, "", 4), ended.err
    for name, line in zip(("four", "one", "three", "two"), told, strict=True):
        assert line.startswith(f"perdure: state/{name}")
    assert "is in this store already; `perdure flow show f` prints it" in told[1]


def test_reimport_of_one_erased_flow_restores_no_other_flow(world: World, exported: Path) -> None:
    flow(world, *RUN[:-1], "f__b", "--record", "other", code=1)
    flow(world, "export", "f__b", "-o", "state/two")
    for id in ("f", "f__b"):
        flow(world, "delete", id, "--yes")
    imports = ("--format", "a-society")
    assert world.ok("import", "state/one", *imports, "--again").out.startswith("f  1 role")
    assert world.ok("import", "state/two", *imports, "--json").json["erased"]
    assert world.ok("import", "state/two", *imports, "--again").out.startswith("f__b  1 role")


def test_import_of_an_erased_flow_with_a_fork_is_refused_each_time(
    world: World, exported: Path
) -> None:
    imports = ("import", "state/one", "--format", "a-society")
    world.ok("sessions", "fork", "f__owner")
    flow(world, "delete", "f", "--yes")
    for _ in range(2):
        ended = world.run(*imports, "--again", "--json")
        assert ended.code == 4
        assert (ended.json["openable"], ended.json["erased"]) == (True, False)
        assert "'f__owner' was erased, but a fork was made of it" in ended.json["error"]
        assert world.ok(*imports).out == "f  nothing new  from state/one\n"
