"""The files of a scaffold: complete, in order, and never replacing an existing file."""

from __future__ import annotations

from pathlib import Path

from perdure.apps.flow.files import faults_of, graph_in
from perdure.apps.flow.init import FILES, initialization, scaffold
from perdure.engine.flows.rules.structure import faults_of as structure_faults
from perdure.models.scenario_yaml import load_scenario


def test_scaffold_files_are_valid(tmp_path: Path) -> None:
    assert all(made.is_new for made in scaffold(tmp_path))
    assert faults_of(tmp_path / "workflow.yaml", tmp_path) == ((), ())
    assert graph_in(tmp_path / "workflow.yaml", tmp_path).roles == (
        *("owner", "developer", "reviewer"),
    )
    assert load_scenario(tmp_path / "scenario.yaml").rules


def test_scaffold_changes_no_existing_file(tmp_path: Path) -> None:
    for _, path in FILES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("mine")
    assert not any(made.is_new for made in scaffold(tmp_path))
    assert {(tmp_path / path).read_text() for _, path in FILES} == {"mine"}


def test_workflow_of_new_project_has_no_structure_faults() -> None:
    for mode in ("greenfield", "takeover"):
        assert structure_faults(initialization(mode)) == []
