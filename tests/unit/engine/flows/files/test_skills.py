"""The skills of a project, and their faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.bounds.limits import InputLimits
from perdure.engine.flows.files.skills import SkillShelf
from perdure.errors import ConfigError

HEAD = "---\nname: tests\ndescription: How we test.\n---\n"


def shelf(folder: Path, **skills: str) -> SkillShelf:
    """Write `skills` as the skill files of a project; return the skills of the project."""
    for name, text in skills.items():
        place = folder / "a-docs" / "skills" / name.replace("_", "-")
        place.mkdir(parents=True, exist_ok=True)
        (place / "SKILL.md").write_text(text)
    return SkillShelf(folder)


def listing(folder: Path, role: str, text: str) -> None:
    """Write the skill list `text` for `role`."""
    place = folder / "a-docs" / "roles" / role
    place.mkdir(parents=True, exist_ok=True)
    (place / "skills.yaml").write_text(text)


def test_skill_consists_of_header_and_text(tmp_path: Path) -> None:
    text = (
        "---\nname: tests\ndescription: >\n  How\n  we test.\nlicense: MIT\n---\n\nRun them all.\n"
    )
    found = shelf(tmp_path, tests=text).skill("tests")
    assert (found.name, found.description) == ("tests", "How we test.")
    assert (found.path, found.text) == ("a-docs/skills/tests/SKILL.md", "Run them all.")


def test_skill_with_credential_is_rejected_without_quoting_it(
    tmp_path: Path,
) -> None:
    key = "ghp_" + "a1B2" * 10
    text = f"{HEAD}Run them all.\n\nWith GITHUB_TOKEN={key}\n"
    with pytest.raises(ConfigError, match=r"SKILL\.md, line 7: it holds what looks") as refused:
        shelf(tmp_path, tests=text).skill("tests")
    assert key not in str(refused.value)
    assert shelf(tmp_path).faults() == (str(refused.value),)
    assert shelf(tmp_path, tests=f"{HEAD}{{{{secrets.GITHUB}}}}").faults() == ()


def test_project_without_a_skills_folder_has_no_skills(tmp_path: Path) -> None:
    empty = SkillShelf(tmp_path)
    assert (empty.names(), empty.whole(), empty.of_role("owner"), empty.faults(["owner"])) == (
        *((), {}, ()),
        (),
    )


def test_role_has_the_skills_that_its_file_lists_in_order(tmp_path: Path) -> None:
    prose = "---\nname: plain-prose\ndescription: How we write.\n---\nBe plain."
    made = shelf(tmp_path, tests=HEAD, plain_prose=prose)
    listing(tmp_path, "developer", "skills: [tests, plain-prose]\n")
    assert [skill.name for skill in made.of_role("developer")] == ["tests", "plain-prose"]
    assert made.names() == ("plain-prose", "tests")


def test_error_for_a_missing_skill_says_where_it_is_required(tmp_path: Path) -> None:
    made = shelf(tmp_path, tests=HEAD)
    listing(tmp_path, "developer", "skills:\n  - tests\n  - magic\n")
    with pytest.raises(ConfigError, match=r"skills\.yaml, line 3: there is no skill 'magic'"):
        made.of_role("developer")
    (fault,) = made.faults(["developer", "developer"])
    assert fault.endswith("in a-docs/skills; there are: tests")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Run them all.", "line 1: it begins with `---`"),
        ("---\nname: tests\n", "line 1: its front matter has no end"),
        ("---\nname: tests\n---\n", "'description' is missing"),
        ("---\nname: other\ndescription: x\n---\n", "line 2: it is called 'other'"),
        ("---\nname: tests\ndescription: ''\n---\n", "line 3: 'description' says nothing"),
        (HEAD.replace("How we test.", "x" * 2000), "within 1024 characters"),
        ("---\nname: tests\ndescription: x\nmodel: y\n---\n", "line 4: 'model' is unknown"),
        (HEAD + "x" * InputLimits().document_bytes, "limits.document_bytes"),
    ],
)
def test_error_for_an_unusable_skill_gives_the_reason(tmp_path: Path, text: str, told: str) -> None:
    made = shelf(tmp_path, tests=text)
    (fault,) = made.faults()
    assert fault.startswith("a-docs/skills/tests/SKILL.md")
    assert told in fault


def test_faulty_skill_list_reports_each_fault_with_line(tmp_path: Path) -> None:
    made = shelf(tmp_path, tests=HEAD)
    listing(tmp_path, "owner", "skils: [tests]\n")
    with pytest.raises(ConfigError, match="line 1: 'skils' is unknown here"):
        made.of_role("owner")


def test_link_to_a_skill_outside_the_project_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(HEAD)
    project = tmp_path / "p"
    made = shelf(project, tests=HEAD)
    file = project / "a-docs" / "skills" / "tests" / "SKILL.md"
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="leads out of the project"):
        made.skill("tests")
