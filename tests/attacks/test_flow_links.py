"""No link in a foreign project leads a flow out of its folders, or to a protected file.

Each case prepares a workspace with real links. A flow begins in the workspace and reads everything
for its roles. A case fails the test if the result contains text from outside or of a protected
file, or if something outside was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.client.flows.documents.start import document_in, file_reader
from perdure.client.flows.locations import Begun, begun_record
from perdure.engine.flows.files.graph_file import CANONICAL, GraphFile, drawn_graph
from perdure.engine.flows.files.record import RecordFolder
from perdure.engine.flows.files.required_readings import Library
from perdure.engine.flows.files.skills import SkillShelf
from perdure.errors import PerdureError
from perdure.session.ids import StreamId

SECRET = "text-from-outside"
WORKFLOW = """\
workflow:
  name: x
  summary: One node.
  nodes:
    - id: owner-intake
      role: owner
      required_readings: [$READING]
      work:
        - Do it.
  edges: []
"""
SKILL = f"---\nname: evil\ndescription: {SECRET}\n---\n{SECRET}\n"
INDEX = "index:\n  $READING: {path}\n"
READINGS = "required_readings:\n  - $READING\n"


def made(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a workspace ``work`` and with files outside of it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("secret.txt", "secret.md", "a/secret.md"):
        made(tmp_path / "outside" / name, SECRET)
    made(tmp_path / "outside" / "skills" / "evil" / "SKILL.md", SKILL)
    made(tmp_path / "outside" / "index.yaml", f"index:\n  {SECRET}: x\n")
    made(tmp_path / "outside" / "workflow.yaml", f"workflow: {SECRET}\n")
    made(tmp_path / "home" / ".ssh" / "id_ed25519", SECRET)
    work = tmp_path / "work"
    for name in (".env", ".git/config", ".perdure/config.toml", "server.key", ".claude/x.json"):
        made(work / name, SECRET)
    made(work / "workflow.yaml", WORKFLOW)
    made(work / "plain.md", "plain")
    made(work / "a-docs" / "index.yaml", INDEX.format(path="plain.md"))
    return tmp_path


def link(name: str, target: str) -> Callable[[Path], None]:
    """Replace `name` in the workspace by a link to `target`, a path from the world's folder."""

    def prepare(world: Path) -> None:
        place = world / "work" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(world / target)

    return prepare


def hard_link(name: str, target: str) -> Callable[[Path], None]:
    def prepare(world: Path) -> None:
        place = world / "work" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        os.link(world / target, place)

    return prepare


def reading(path: str) -> Callable[[Path], None]:
    """Make `path` a required reading of the role."""

    def prepare(world: Path) -> None:
        made(world / "work" / "a-docs" / "index.yaml", INDEX.format(path=path))
        made(world / "work" / "a-docs/roles/owner/required-readings.yaml", READINGS)

    return prepare


def both(*prepares: Callable[[Path], None]) -> Callable[[Path], None]:
    def prepare(world: Path) -> None:
        for each in prepares:
            each(world)

    return prepare


MAIN = "a-docs/roles/owner/main.md"
CASES: dict[str, Callable[[Path], None]] = {
    "main.md is a link out": link(MAIN, "outside/secret.md"),
    "main.md is a link to .env": link(MAIN, "work/.env"),
    "main.md is a link to .git/config": link(MAIN, "work/.git/config"),
    "main.md is a link to a key of the person": link(MAIN, "home/.ssh/id_ed25519"),
    "main.md is a link to perdure's settings": link(MAIN, "work/.perdure/config.toml"),
    "main.md is a link through two": both(link("hop", "outside/secret.md"), link(MAIN, "work/hop")),
    "main.md is a hard link": hard_link(MAIN, "outside/secret.md"),
    "the role's folder is a link out": link("a-docs/roles/owner", "outside"),
    "the index is a link out": link("a-docs/index.yaml", "outside/index.yaml"),
    "the index is a link to .env": link("a-docs/index.yaml", "work/.env"),
    "the readings are a link out": link(
        "a-docs/roles/owner/required-readings.yaml", "outside/index.yaml"
    ),
    "a reading is .env": reading(".env"),
    "a reading is .git/config": reading(".git/config"),
    "a reading is .perdure/config.toml": reading(".perdure/config.toml"),
    "a reading is a key file": reading("server.key"),
    "a reading is another program's settings": reading(".claude/x.json"),
    "a reading leads up": reading("../outside/secret.md"),
    "a reading is absolute": reading("/etc/passwd"),
    "a reading is a link out": both(reading("x.md"), link("x.md", "outside/secret.md")),
    "a reading is a link to .env": both(reading("x.md"), link("x.md", "work/.env")),
    "a reading is a hard link": both(reading("x.md"), hard_link("x.md", "outside/secret.md")),
    "a reading is below a link out": both(reading("d/secret.md"), link("d", "outside")),
    "a skill is a link out": link("a-docs/skills/evil/SKILL.md", "outside/skills/evil/SKILL.md"),
    "a skill's folder is a link out": link("a-docs/skills/evil", "outside/skills/evil"),
    "the skills are a link out": link("a-docs/skills", "outside/skills"),
    "the skills of a role are a link out": link(
        "a-docs/roles/owner/skills.yaml", "outside/index.yaml"
    ),
    "the canonical workflow is a link out": link(str(CANONICAL), "outside/workflow.yaml"),
    "the canonical workflow is a link to .env": link(str(CANONICAL), "work/.env"),
    "the workflow is a link out": link("workflow.yaml", "outside/workflow.yaml"),
    "the workflow is a link to .env": link("workflow.yaml", "work/.env"),
    "the workflow is a link to .git/config": link("workflow.yaml", "work/.git/config"),
    "the record's workflow is a link out": link("rec/workflow.yaml", "outside/workflow.yaml"),
    "an artifact is a link out": link("rec/a.md", "outside/secret.md"),
    "a document reads a link out": link("d.md", "outside/secret.md"),
    "a document reads a link to .env": link("d.md", "work/.env"),
}


def all_that_is_read(work: Path) -> str:
    """Return everything that a flow reads in `work`, and its errors."""
    record = work / "rec"
    library, shelf = Library(work), SkillShelf(work)
    begun = Begun(StreamId("f"), work, record, "work", "no-access")
    reads: tuple[Callable[[], object], ...] = (
        lambda: library.of_role("owner"),
        lambda: library.by_name(["$READING"], "here"),
        library.faults,
        shelf.names,
        shelf.whole,
        lambda: shelf.of_role("owner"),
        lambda: shelf.faults(["owner"]),
        lambda: drawn_graph(WORKFLOW, "x", work),
        lambda: begun_record(begun, work / "workflow.yaml", {}),
        lambda: document_in(work / "workflow.yaml"),
        lambda: GraphFile(record, work).now(),
        lambda: RecordFolder(record, work).look_up(["a.md", "../.env", "workflow.yaml"]),
        lambda: RecordFolder(record, work).texts(["a.md"]),
        lambda: file_reader(work)("d.md"),
    )
    told: list[str] = []
    for read in reads:
        try:
            told.append(repr(read()))
        except (PerdureError, OSError) as error:
            told.append(f"{error!r} {error}")
    return "\n".join(told)


@pytest.mark.parametrize("case", CASES)
def test_flow_reads_nothing_outside_of_its_project(world: Path, case: str) -> None:
    CASES[case](world)
    told = all_that_is_read(world / "work")
    assert SECRET not in told
    assert "root:" not in told


@pytest.mark.parametrize("name", [".env", ".git/config", "server.key", ".perdure/config.toml"])
def test_artifact_with_a_protected_name_is_not_handed_over(world: Path, name: str) -> None:
    found = RecordFolder(world / "work", world / "work").look_up([name])[name]
    assert found.content == b""
    assert found.artifact.problem is not None


def test_flow_reads_files_through_links_inside_the_project(world: Path) -> None:
    work = world / "work"
    made(work / MAIN, "I own it.")
    made(work / "real" / "x.md", "in the project")
    (work / "x.md").symlink_to("real/x.md")
    reading("x.md")(world)
    owner, listed = Library(work).of_role("owner")
    assert (owner.text, listed.text) == ("I own it.", "in the project")
    assert document_in(work / "workflow.yaml") is None


# ---------------------------------------------------------------- record folders

FLOW = StreamId("f")


def record_of(world: Path, record: str) -> None:
    work = world / "work"
    begun = Begun(FLOW, work, work / record, "work", "no-access")
    begun_record(begun, work / "workflow.yaml", {})


RECORDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link out": (link("rec", "outside"), "rec"),
    "below a link out": (link("d", "outside"), "d/rec"),
    "a link to .git": (link("rec", "work/.git"), "rec"),
    "the usual place is a link out": (link(".perdure/records", "outside"), ".perdure/records/f"),
    "its own usual place is a link out": (
        link(".perdure/records/f", "outside"),
        ".perdure/records/f",
    ),
    "the usual place is a link to .git": (
        link(".perdure/records", "work/.git"),
        ".perdure/records/f",
    ),
    "it is .git": (lambda world: None, ".git"),
    "it is below .git": (lambda world: None, ".git/hooks"),
    "it is perdure's folder": (lambda world: None, ".perdure"),
    "it is a folder of keys": (lambda world: None, "../home/.ssh"),
    "it leads up by a link": (link("d", "home"), "d/.ssh"),
    "its owner's file is a link out": (link("rec/.flow", "outside/new.txt"), "rec"),
    "its owner's file is a link to a file": (link("rec/.flow", "outside/empty.txt"), "rec"),
    "its workflow is a link out": (link("rec/workflow.yaml", "outside/new.txt"), "rec"),
    "its findings are a link out": (link("rec/findings", "outside"), "rec"),
    "its owner's file is a hard link": (hard_link("rec/.flow", "outside/empty.txt"), "rec"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_record_folder_that_is_reached_through_a_link_is_refused(world: Path, case: str) -> None:
    (world / "outside" / "empty.txt").touch()
    prepare, record = RECORDS[case]
    prepare(world)
    made(world / "work" / "a-docs" / "roles" / "owner" / "main.md", "I own it.")

    def state() -> dict[str, bytes]:
        places = [world / "outside", world / "home", world / "work" / ".git"]
        files = [file for place in places for file in place.rglob("*") if file.is_file()]
        return {str(file): file.read_bytes() for file in files}

    before = state()
    with pytest.raises(PerdureError):
        record_of(world, record)
    assert state() == before


def test_link_at_the_temporary_workflow_path_is_not_followed(
    world: Path,
) -> None:
    link("rec/.workflow.yaml.new", "outside/new.txt")(world)
    record_of(world, "rec")
    assert not (world / "outside" / "new.txt").exists()


@pytest.mark.parametrize("record", ["rec", ".perdure/records/f", "a/b/c", "../elsewhere"])
def test_record_folder_without_links_is_created(world: Path, record: str) -> None:
    record_of(world, record)
    assert (world / "work" / record / ".flow").read_text() == "f"
    assert (world / "work" / record / "workflow.yaml").read_text() == WORKFLOW
    assert (world / "work" / record / "findings").is_dir()
    record_of(world, record)


def test_list_of_attacking_links_has_enough_links() -> None:
    assert len({*CASES, *RECORDS}) >= 45
