"""No path leads outside, reads a credential or writes protected files, even with swapped links.

The corpora have one path per line; ``\\0`` and the escapes of surrogates stand for the escaped
characters.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.tools.builtin.edits import edit_file, write_file
from perdure.tools.builtin.files import list_directory, read_file
from perdure.tools.builtin.search import search_files
from perdure.tools.execution import ToolRun
from perdure.tools.permissions import Permissions
from tests.fakes.samples import case, with_larger
from tests.fakes.tool_calls import Tools

FOLDER = Path(__file__).with_name("corpora")
SECRET = "outside-secret"
CREDENTIAL = "credential-inside"
ROUNDS = pytest.mark.parametrize("rounds", with_larger(30, 120))


def corpus(name: str) -> list[str]:
    lines = (FOLDER / name).read_text(encoding="utf-8").split("\n")[:-1]
    for written, meant in (("\\0", "\0"), ("\\ud800", "\ud800"), ("\\udcff", "\udcff")):
        lines = [line.replace(written, meant) for line in lines]
    return lines


PATHS = corpus("paths.txt")
WRITES = corpus("writes.txt")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    for place in (folder / "secret.txt", folder / "deep" / "secret.txt"):
        place.write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    """A workspace with everything that a path could use to escape."""
    folder = tmp_path / "root"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "file.txt").write_text("inside")
    credentials = (".env", ".git/config", ".ssh/id_rsa", ".netrc", ".aws/credentials")
    for name in credentials:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(CREDENTIAL)
    os.link(outside / "secret.txt", folder / "hard.txt")
    os.link(outside / "secret.txt", folder / "a" / "hard.txt")
    links: dict[str, str | Path] = {
        "in": "a/b",
        "a/up": "..",
        "out": outside,
        "out-file": outside / "secret.txt",
        "out-new": outside / "new.txt",
        "out-relative": "../outside",
        "out-relative-file": "../outside/secret.txt",
        "out-twice": "out/deep",
        "out-through-in": "in/../../../outside/secret.txt",
        "out-slash": "/",
        "out-dots": "a/../../outside",
        "out-proc": f"/proc/self/root{outside}",
        "out-cwd": "/proc/self/cwd",
        "a/out-up": "../../outside/secret.txt",
        "chain-1": "chain-2",
        "chain-2": "out-file",
        "link-to-env": ".env",
        "link-to-git": ".git",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    return folder


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below `folder`, with its content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def given(path: str, root: Path, outside: Path) -> str:
    return path.replace("{root}", str(root)).replace("{outside}", str(outside))


def require_harmless(run: ToolRun, root: Path) -> None:
    assert run.outcome in ("refused", "error")
    said = run.output.text
    assert SECRET not in said
    assert CREDENTIAL not in said
    assert str(root.parent) not in said
    assert "/" not in said.replace("perdure's", "")
    assert "passwd" not in said


def test_list_of_attacked_paths_has_enough_paths() -> None:
    assert len(set(PATHS)) >= 190
    assert len(set(WRITES)) >= 50


async def test_forbidden_path_is_never_read(root: Path, outside: Path) -> None:
    # Scenario 9.31 of the specification.
    for path in PATHS:
        with case(path):
            tools = Tools(root)
            require_harmless(await tools.run(read_file, path=given(path, root, outside)), root)


async def test_forbidden_path_is_never_written(root: Path, outside: Path) -> None:
    # Scenario 9.31 of the specification.
    """No existing file changes; an odd path can create a new file, but only in the workspace."""
    after = state_of(root.parent)
    paths = [*PATHS, *WRITES]
    for few in (paths[at : at + 6] for at in range(0, len(paths), 6)):
        with case(few):
            before = after
            for path in few:
                place = given(path, root, outside)
                tools = Tools(root)
                for settings in ({"create_dirs": True}, {"append": True}):
                    run = await tools.run(write_file, path=place, content="overwritten", **settings)
                    told = run.output.text.replace("perdure's", "")
                    assert run.outcome == "ok" or "/" not in told
                require_harmless(
                    await tools.run(edit_file, path=place, old_text="s", new_text="x"), root
                )
            after = state_of(root.parent)
            assert after.items() >= before.items()
            new = {Path(name).parts[0] for name in after.keys() - before.keys()}
            assert new <= {"root"}


async def test_protected_path_is_never_written(root: Path) -> None:
    # Scenario 9.31 of the specification.
    for path in WRITES:
        with case(path):
            run = await Tools(root).run(write_file, path=path, content="x", create_dirs=True)
            assert (run.outcome, run.error_code) == ("refused", "tool_denied")


async def test_no_forbidden_path_is_listed_or_searched(root: Path, outside: Path) -> None:
    for path in [path for path in PATHS if "file" not in path.rsplit("/", 1)[-1]]:
        with case(path):
            tools = Tools(root)
            place = given(path, root, outside)
            for run in (
                await tools.run(list_directory, path=place, recursive=True),
                await tools.run(search_files, path=place, pattern="e"),
            ):
                assert SECRET not in run.output.text
                assert CREDENTIAL not in run.output.text
                assert "root:" not in run.output.text
                assert run.outcome != "ok" or "outside" not in run.output.text


async def test_search_of_everything_finds_no_protected_file(root: Path) -> None:
    run = await Tools(root).run(search_files, pattern="e")
    assert "inside" in run.output.text
    for closed in (SECRET, CREDENTIAL):
        assert closed not in run.output.text


async def test_full_scope_allows_no_write_to_protected_files(root: Path) -> None:
    for path in WRITES:
        with case(path):
            tools = Tools(root, Permissions(scope="full", approval="auto"))
            run = await tools.run(write_file, path=path, content="x", create_dirs=True)
            assert run.outcome == "refused"
            absolute = await tools.run(
                write_file, path=f"{root}/{path}", content="x", create_dirs=True
            )
            assert absolute.outcome == "refused"


# ---------------------------------------------------------------- races


@contextmanager
def swapping(*states: Callable[[], None]) -> Generator[None]:
    """A thread switches between states during the test."""
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for state in states:
                with contextlib.suppress(OSError):  # the tool makes and takes names meanwhile
                    state()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def becomes_link(place: Path, target: Path) -> Callable[[], None]:
    def act() -> None:
        spare = place.with_name(f"spare-{place.name}")
        spare.symlink_to(target)
        spare.replace(place)

    return act


def becomes_file(place: Path) -> Callable[[], None]:
    def act() -> None:
        spare = place.with_name(f"spare-{place.name}")
        spare.write_text("inside")
        spare.replace(place)

    return act


@ROUNDS
async def test_write_does_not_follow_a_file_swapped_for_a_link(
    root: Path, outside: Path, rounds: int
) -> None:
    place, target = root / "swapped", outside / "secret.txt"
    place.write_text("inside")
    tools = Tools(root)
    outcomes: set[str] = set()
    with swapping(becomes_link(place, target), becomes_file(place)):
        for turn in range(rounds):
            run = await tools.run(
                write_file, path="swapped", content="overwritten", append=bool(turn % 2)
            )
            outcomes.add(run.outcome)
            read = await tools.run(read_file, path="swapped")
            assert SECRET not in read.output.text
    assert target.read_text() == SECRET
    assert outcomes - {"ok", "error", "refused"} == set()


@ROUNDS
async def test_write_does_not_follow_a_directory_swapped_for_a_link(
    root: Path, outside: Path, rounds: int
) -> None:
    place, aside = root / "folder", root / "aside"
    place.mkdir()

    def be_a_link() -> None:
        place.rename(aside)
        place.symlink_to(outside)

    def be_a_directory() -> None:
        place.unlink()
        aside.rename(place)

    tools = Tools(root)
    with swapping(be_a_link, be_a_directory):
        for _ in range(rounds):
            await tools.run(
                write_file, path="folder/new/secret.txt", content="overwritten", create_dirs=True
            )
            await tools.run(write_file, path="folder/secret.txt", content="overwritten")
            await tools.run(edit_file, path="folder/secret.txt", old_text="outside", new_text="x")
            read = await tools.run(read_file, path="folder/secret.txt")
            assert SECRET not in read.output.text
    assert state_of(outside).keys() == {"secret.txt", "deep/secret.txt"}
    assert (outside / "secret.txt").read_text() == SECRET


@ROUNDS
async def test_file_that_gains_a_second_hard_link_is_not_changed(
    root: Path, outside: Path, rounds: int
) -> None:
    place, target = root / "linked", outside / "secret.txt"

    def be_linked() -> None:
        spare = root / "spare-hard"
        os.link(target, spare)
        spare.replace(place)
        spare.unlink(missing_ok=True)  # rename leaves it when both are one file

    tools = Tools(root)
    with swapping(be_linked, becomes_file(place)):
        for turn in range(rounds):
            await tools.run(write_file, path="linked", content="bad", append=bool(turn % 2))
            assert SECRET not in (await tools.run(read_file, path="linked")).output.text
    assert target.read_text() == SECRET


@ROUNDS
async def test_write_into_a_folder_that_was_moved_stays_inside_the_root(
    root: Path, outside: Path, rounds: int
) -> None:
    inner, moved = root / "a" / "moving", outside / "moving"
    inner.mkdir()

    def move_out() -> None:
        inner.rename(moved)

    def move_in() -> None:
        moved.rename(inner)

    tools = Tools(root)
    with swapping(move_out, move_in):
        for _ in range(rounds):
            read = await tools.run(read_file, path="a/moving/../../../outside/secret.txt")
            assert SECRET not in read.output.text
            read = await tools.run(read_file, path="a/moving/../secret.txt")
            assert SECRET not in read.output.text
            await tools.run(write_file, path="a/moving/../secret.txt", content="in a")
    assert (outside / "secret.txt").read_text() == SECRET
