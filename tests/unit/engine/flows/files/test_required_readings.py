from __future__ import annotations

from pathlib import Path

import pytest

from perdure.engine.flows.files.required_readings import Library, project_folder
from perdure.errors import ConfigError

INDEX = "index:\n  $RULES: docs/rules.md\n  $GONE: docs/gone.md\n  $OUT: ../secret.md\n"


def library(folder: Path, index: str = INDEX, **files: str) -> Library:
    """Return a project with an index and `files`; ``__`` in a name stands for a slash."""
    written = {"a-docs__index.yaml": index, "docs__rules.md": "Be brief.", **files}
    for name, text in written.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder.parent / "secret.md").write_text("secret")
    return Library(folder)


def test_required_readings_of_a_node_are_found_by_name(tmp_path: Path) -> None:
    (found,) = library(tmp_path / "p").by_name(["$RULES"], "node 'build'")
    assert (found.name, found.path, found.text) == ("$RULES", "docs/rules.md", "Be brief.")


def test_required_readings_of_a_role_include_its_main_page(
    tmp_path: Path,
) -> None:
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
def test_error_for_a_missing_reading_says_where_it_is_required(
    tmp_path: Path, name: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        library(tmp_path / "p").by_name([name], "node 'build'")


def test_faulty_role_list_reports_each_fault_with_line(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    made = library(folder)
    role = folder / "a-docs" / "roles" / "developer"
    role.mkdir(parents=True)
    (role / "required-readings.yaml").write_text("required_readings:\n  - rules.md\n  - 7\n")
    with pytest.raises(ConfigError, match=r"line 2: 'rules.md' is no name.*line 3: expected text"):
        made.of_role("developer")


def test_faulty_index_reports_each_fault_with_line(tmp_path: Path) -> None:
    made = library(tmp_path / "p", "index:\n  rules: a.md\n  $B: 7\nmore: 1\n")
    with pytest.raises(ConfigError, match=r"line 2: 'rules' is no name.*line 3.*line 4: 'more'"):
        made.by_name(["$RULES"], "here")


def test_index_entry_without_a_file_is_a_fault(tmp_path: Path) -> None:
    found = library(tmp_path / "p").faults()
    assert [fault.partition(":")[0] for fault in found] == ["$GONE", "$OUT"]
    assert Library(tmp_path / "nothing").faults() == ()


def test_project_folder_is_the_folder_that_contains_the_documents(
    tmp_path: Path,
) -> None:
    assert project_folder(tmp_path, "p") == tmp_path
    (tmp_path / "p" / "a-docs").mkdir(parents=True)
    assert project_folder(tmp_path, "p") == tmp_path / "p"
