from __future__ import annotations

from pathlib import Path

import pytest

from perdure.engine.flows.files.required_readings import Library, project_folder
from perdure.errors import ConfigError

INDEX = "index:\n  $RULES: docs/rules.md\n  $GONE: docs/gone.md\n  $OUT: ../secret.md\n"


def library(folder: Path, index: str = INDEX, **files: str) -> Library:
    """A project with an index and `files`; a name's ``__`` is a slash."""
    written = {"a-docs__index.yaml": index, "docs__rules.md": "Be brief.", **files}
    for name, text in written.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder.parent / "secret.md").write_text("secret")
    return Library(folder)


def test_a_node_s_readings_are_found_by_their_names(tmp_path: Path) -> None:
    (found,) = library(tmp_path / "p").by_name(["$RULES"], "node 'build'")
    assert (found.name, found.path, found.text) == ("$RULES", "docs/rules.md", "Be brief.")


def test_a_role_reads_its_own_page_and_what_it_requires(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    made = library(folder)
    role = folder / "a-docs" / "roles" / "developer"
    role.mkdir(parents=True)
    (role / "main.md").write_text("You build.")
    (role / "required-readings.yaml").write_text("required_readings:\n  - $RULES\n")
    assert [reading.text for reading in made.of_role("developer")] == ["You build.", "Be brief."]
    assert made.of_role("reviewer") == ()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("$NO", r"node 'build': \$NO is not in a-docs/index.yaml, which has: \$RULES"),
        ("$GONE", r"a-docs/index.yaml, line 3: there is no file docs/gone.md"),
        ("$OUT", r"a-docs/index.yaml, line 4: ../secret.md lies outside of the project"),
    ],
)
def test_a_reading_that_cannot_be_found_says_where_it_was_asked_for(
    tmp_path: Path, name: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        library(tmp_path / "p").by_name([name], "node 'build'")


def test_a_role_s_list_with_faults_says_each_with_its_line(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    made = library(folder)
    role = folder / "a-docs" / "roles" / "developer"
    role.mkdir(parents=True)
    (role / "required-readings.yaml").write_text("required_readings:\n  - rules.md\n  - 7\n")
    with pytest.raises(ConfigError, match=r"line 2: 'rules.md' is no name.*line 3: expected text"):
        made.of_role("developer")


def test_an_index_with_faults_says_each_with_its_line(tmp_path: Path) -> None:
    made = library(tmp_path / "p", "index:\n  rules: a.md\n  $B: 7\nmore: 1\n")
    with pytest.raises(ConfigError, match=r"line 2: 'rules' is no name.*line 3.*line 4: 'more'"):
        made.by_name(["$RULES"], "here")


def test_what_of_the_index_leads_nowhere_keeps_a_project_out_of_order(tmp_path: Path) -> None:
    found = library(tmp_path / "p").faults()
    assert [fault.partition(":")[0] for fault in found] == ["$GONE", "$OUT"]
    assert Library(tmp_path / "nothing").faults() == ()


def test_a_project_is_a_folder_of_the_workspace_that_has_documents(tmp_path: Path) -> None:
    assert project_folder(tmp_path, "p") == tmp_path
    (tmp_path / "p" / "a-docs").mkdir(parents=True)
    assert project_folder(tmp_path, "p") == tmp_path / "p"
