"""``perdure export --format workflow``: where the file is written, and the export's record in the
session.
"""

from __future__ import annotations

import json

from perdure.workflow.document import AgentNode
from perdure.workflow.reader import parse
from perdure.workflow.writer import serialize
from tests.acceptance.cli.conftest import SAMPLE_ID, World

WORDS = ("export", SAMPLE_ID, "--format", "workflow")


def test_exported_workflow_contains_only_the_current_branch(sample: World) -> None:
    ended = sample.ok(*WORDS)
    workflow = parse(ended.out)
    assert serialize(workflow) == ended.out
    assert workflow.id == "the-tide-table-that-lost-an-hour"
    assert sum(isinstance(node, AgentNode) for node in workflow.nodes) == 4
    assert "entries of other branches that are left out: 6" in ended.err
    other = sample.ok(*WORDS, "--leaf", "12")
    assert parse(other.out) != workflow


def test_workflow_export_into_a_folder_names_the_file_after_the_session(
    sample: World,
) -> None:
    sample.ok(*WORDS, "-o", ".")
    file = sample.folder / f"{SAMPLE_ID}.workflow.yaml"
    first = file.read_bytes()
    show = json.loads(sample.ok("sessions", "list", "--json").out)
    assert [session["status"] for session in show] == ["exported"]
    log = sample.ok("export", SAMPLE_ID).out
    assert f'"kind":"session_exported","v":1,"body":{{"path":"{file}"' in log
    again = sample.run(*WORDS, "-o", ".")
    assert (again.code, file.read_bytes()) == (4, first)
    assert "--force" in again.err
    sample.ok(*WORDS, "-o", ".", "--force")
    assert file.read_bytes() == first


def test_relavium_export_has_another_file_name_and_metadata_key(sample: World) -> None:
    told = sample.ok(*WORDS, "--dialect", "relavium", "-o", ".", "--json").out
    assert json.loads(told)["output"] == f"{SAMPLE_ID}.relavium.yaml"
    text = (sample.folder / f"{SAMPLE_ID}.relavium.yaml").read_text("utf-8")
    assert list(parse(text).metadata) == ["relaviumExport"]


def test_workflow_export_rejects_contradictory_options(sample: World) -> None:
    assert sample.run(*WORDS, "--all-branches").code == 2
    assert sample.run("export", SAMPLE_ID, "--dialect", "relavium").code == 2
    assert sample.run(*WORDS, "--dialect", "other").code == 2


def test_workflow_export_redacts_secrets_and_paths(sample: World) -> None:
    sample.ok("sessions", "rename", SAMPLE_ID, "of /home/mira and AKIAIOSFODNN7EXAMPLE")
    ended = sample.ok(*WORDS, "--redact", "secrets,paths")
    assert "mira" not in ended.out
    assert "AKIA" not in ended.out
    parse(ended.out)


def test_session_stays_active_after_a_workflow_export_to_a_pipe(sample: World) -> None:
    assert sample.ok(*WORDS).out.startswith('schema_version: "1.0"\n')
    assert json.loads(sample.ok("sessions", "list", "--json").out)[0]["status"] == "active"
