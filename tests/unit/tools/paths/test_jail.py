from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import ToolDenied, ToolError
from perdure.tools.paths.floors import is_secret
from perdure.tools.paths.jail import MAX_DEPTH, Jail
from tests.fakes.samples import case

SECRET = b"outside"
SWAPS = 160


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "secret.txt").write_bytes(SECRET)
    (folder / "deep" / "secret.txt").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    """A jail with content, links that stay inside, and links that leave it."""
    folder = tmp_path / "root"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "file.txt").write_bytes(b"inside")
    (folder / "a" / "b" / "file.txt").write_bytes(b"deep inside")
    (folder / "...").mkdir()
    links: dict[str, str | Path] = {
        "in": "a/b",
        "in-file": "a/b/file.txt",
        "in-up": "a/b/../../file.txt",
        "in-absolute": folder / "a",
        "in-twice": "in/file.txt",
        "a/up": "..",
        "out": outside,
        "out-file": outside / "secret.txt",
        "out-relative": "../outside",
        "out-relative-file": "../outside/secret.txt",
        "out-twice": "out/deep",
        "out-through-in": "in/../../../outside/secret.txt",
        "out-slash": "/",
        "out-dots": "a/../../outside",
        "out-proc": f"/proc/self/root{outside}",
        "out-cwd": "/proc/self/cwd",
        "a/out-up": "../../outside/secret.txt",
        "loop": "loop",
        "loop-a": "loop-b",
        "loop-b": "loop-a",
        "nowhere": "missing",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    return folder


def read(root: Path, path: str) -> bytes:
    with Jail(root, "tool").file(path) as descriptor:
        return os.read(descriptor, 100)


@pytest.mark.parametrize(
    "path",
    [
        "file.txt",
        "./file.txt",
        "././/file.txt",
        "a/../file.txt",
        "a/b/../../file.txt",
        "in-up",
        "a/up/file.txt",
        "a/up/a/up/file.txt",
        "in/../../file.txt",  # as the kernel reads it: up from where the link leads
    ],
)
def test_path_inside_the_root_folder_is_opened(root: Path, path: str) -> None:
    assert read(root, path) == b"inside"


@pytest.mark.parametrize("path", ["in/file.txt", "in-file", "in-twice", "in-absolute/b/file.txt"])
def test_links_to_targets_inside_the_root_folder_are_followed(root: Path, path: str) -> None:
    assert read(root, path) == b"deep inside"


def test_absolute_path_inside_the_root_folder_is_opened(root: Path) -> None:
    assert read(root, f"{root}/file.txt") == b"inside"
    assert read(root, f"/{root}//a/../file.txt") == b"inside"
    assert read(root, f"{root}/a/up/file.txt") == b"inside"


def test_linked_root_is_accepted_under_both_names(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    link = tmp_path / "link"
    for path in ("file.txt", f"{link}/file.txt", f"{root}/file.txt", "in-absolute/up/file.txt"):
        assert read(link, path) == b"inside"


ESCAPES = [
    "..",
    "../",
    "../outside/secret.txt",
    "./../outside/secret.txt",
    ".//..//outside/secret.txt",
    "a/../../outside/secret.txt",
    "a/b/../../../outside/secret.txt",
    "a/b/../../../outside/deep/../secret.txt",
    "../root/../outside/secret.txt",
    "../root/file.txt",  # comes back, but was out
    "../../../../../../../../etc/passwd",
    "missing/../../outside/secret.txt",
    "file.txt/../../outside/secret.txt",
    "in/../../../outside/secret.txt",
    "a/up/../outside/secret.txt",
    "a/up/..",
    "in-absolute/../../outside/secret.txt",
    "out",
    "out/",
    "out/.",
    "out/secret.txt",
    "out/deep/secret.txt",
    "out/../outside/secret.txt",
    "out/../root/file.txt",
    "out-file",
    "./out-file",
    "a/../out-file",
    "out-relative/secret.txt",
    "out-relative-file",
    "out-twice/secret.txt",
    "out-through-in",
    "out-slash/etc/passwd",
    "out-dots/secret.txt",
    "out-proc/secret.txt",
    "out-cwd",
    "a/out-up",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "/../etc/passwd",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd/file.txt",
    "/dev/stdin",
    "/dev/fd/0",
    "{root}/../outside/secret.txt",
    "{root}/a/../../outside/secret.txt",
    "{root}/out-file",
    "{root}-other/file.txt",
    "{root}x",
    "{parent}",
    "{parent}/outside/secret.txt",
    "/proc/self/root{root}/file.txt",
    "/./{root}/../outside/secret.txt",
    "...//../..",
    "~/secret.txt",
    "~root/secret.txt",
    "$HOME/secret.txt",
    "file:///etc/passwd",
    "file://{parent}/outside/secret.txt",
    "..\\outside\\secret.txt",
    "..%2foutside%2fsecret.txt",
    "%2e%2e/outside/secret.txt",
    "\uff0e\uff0e/outside/secret.txt",
    "..\u2215outside\u2215secret.txt",
    "\\\\server\\share\\secret.txt",
    "C:\\secret.txt",
    "file.txt\0",
    "file.txt\0/../../outside/secret.txt",
    "../outside/secret.txt\0.txt",
    "a\udcff/../../outside/secret.txt",
    "\ud800",
]


def test_path_outside_the_root_folder_is_never_opened(root: Path) -> None:
    for path in ESCAPES:
        with case(path):
            given = path.format(root=root, parent=root.parent)
            for look in (Jail(root, "tool").file, Jail(root, "tool").directory):
                with pytest.raises(ToolError) as caught, look(given):
                    pass
                rest = str(caught.value).replace(repr(given), "")
                assert str(root.parent) not in rest
                assert "outside" not in rest
                assert caught.value.__cause__ is None


@pytest.mark.parametrize("path", ["..", "out-file", "/etc/passwd", "a/../..", "\0", "in/../../.."])
def test_path_leading_outside_the_root_is_denied(root: Path, path: str) -> None:
    with pytest.raises(ToolDenied), Jail(root, "tool").open_path(path):
        pass


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing", "No such file or directory"),
        ("nowhere", "No such file or directory"),
        ("a/missing/file.txt", "No such file or directory"),
        ("file.txt/more", "Not a directory"),
        ("in-file/more", "Not a directory"),
        ("loop", "too many links"),
        ("loop-a", "too many links"),
        ("x" * 300, "File name too long"),
        ("a/" * 3000, "File name too long"),
        ("a/../" * 900, "File name too long"),
        ("a", "is a directory"),
        ("", "is a directory"),
        (".", "is a directory"),
        ("in", "is a directory"),
    ],
)
def test_missing_or_special_file_error_has_reason(root: Path, path: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason) as caught, Jail(root, "tool").file(path):
        pass
    assert not isinstance(caught.value, ToolDenied)


def test_file_opened_as_directory_is_rejected(root: Path) -> None:
    with (
        pytest.raises(ToolError, match="is not a directory"),
        Jail(root, "tool").directory("file.txt"),
    ):
        pass


def test_missing_root_folder_of_a_jail_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="No such file"), Jail(tmp_path / "no", "tool").file("x"):
        pass


def test_links_in_the_path_of_an_opened_directory_are_resolved(root: Path) -> None:
    with Jail(root, "tool").directory("in/../up/in") as found:
        assert found.names == ("a", "b")
        assert os.stat("file.txt", dir_fd=found.descriptor).st_size == len(b"deep inside")
    with Jail(root, "tool").directory(".") as found:
        assert found.names == ()


def test_too_deep_directories_are_rejected(tmp_path: Path) -> None:
    deepest = tmp_path
    for _ in range(MAX_DEPTH + 1):
        deepest /= "d"
    deepest.mkdir(parents=True)
    jail = Jail(tmp_path, "tool")
    with jail.directory("d/" * MAX_DEPTH) as found:
        assert len(found.names) == MAX_DEPTH
    with pytest.raises(ToolError, match="too many directories"), jail.directory("d/" * 129):
        pass


# ---------------------------------------------------------------- special files


@contextmanager
def pipe_at(path: Path) -> Generator[None]:
    os.mkfifo(path)
    yield


@contextmanager
def socket_at(path: Path) -> Generator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        yield


@pytest.mark.parametrize("special_at", [pipe_at, socket_at])
def test_special_file_is_refused_without_waiting(
    root: Path,
    special_at: Callable[[Path], AbstractContextManager[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(root)  # the path of a socket has little room
    with special_at(Path("special")):
        (root / "link").symlink_to("special")
        for path in ("special", "link"):
            with pytest.raises(ToolError, match="not a regular file"):
                read(root, path)


def test_device_file_is_refused() -> None:
    with pytest.raises(ToolError, match="not a regular file"):
        read(Path("/dev"), "null")


# ---------------------------------------------------------------- races


@contextmanager
def swapping(*states: Callable[[], None]) -> Generator[None]:
    """Call the functions `states` in turn, in another thread, until the block ends."""
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            for state in states:
                state()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def replaced_by_link(place: Path, target: Path) -> Callable[[], None]:
    def act() -> None:
        spare = place.with_name("spare-link")
        spare.symlink_to(target)
        spare.replace(place)

    return act


def test_file_swapped_for_a_link_never_leads_outside_the_root(root: Path, outside: Path) -> None:
    place = root / "swapped.txt"

    def be_a_file() -> None:
        spare = root / "spare-file"
        spare.write_bytes(b"inside")
        spare.replace(place)

    be_a_file()
    contents: set[bytes] = set()
    with swapping(replaced_by_link(place, outside / "secret.txt"), be_a_file):
        for _ in range(SWAPS):
            try:
                contents.add(read(root, "swapped.txt"))
            except ToolError:
                contents.add(b"refused")
    assert contents <= {b"inside", b"refused"}


def test_directory_swapped_for_a_link_never_leads_outside_the_root(
    root: Path, outside: Path
) -> None:
    (root / "dir").mkdir()
    (root / "dir" / "secret.txt").write_bytes(b"inside")

    def swap() -> None:
        (root / "dir").rename(root / "dir-aside")
        (root / "dir").symlink_to(outside)
        (root / "dir").unlink()
        (root / "dir-aside").rename(root / "dir")

    contents: set[bytes] = set()
    with swapping(swap):
        for _ in range(SWAPS):
            for path in ("dir/secret.txt", "dir/deep/../secret.txt", "dir/../outside/secret.txt"):
                try:
                    contents.add(read(root, path))
                except ToolError:
                    contents.add(b"refused")
    assert contents <= {b"inside", b"refused"}
    assert SECRET not in contents


@pytest.mark.parametrize(("path", "target"), [("late", "secret.txt"), ("late/secret.txt", "")])
def test_link_that_replaces_a_checked_name_is_not_followed(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, path: str, target: str
) -> None:
    late, checked = root / "late", root / path
    checked.parent.mkdir(exist_ok=True)
    checked.write_bytes(b"inside")
    assert read(root, path) == b"inside"
    real = os.open

    def swapped(name: str, *how: Any, **options: Any) -> int:
        if name == "late":
            monkeypatch.undo()
            late.rename(root / "aside")
            late.symlink_to(outside / target)
        return real(name, *how, **options)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(ToolError):
        read(root, path)
    assert late.is_symlink()


def open_descriptors() -> list[Path]:
    return list(Path("/proc/self/fd").iterdir())


def test_opening_paths_leaks_no_file_descriptors(root: Path) -> None:
    before = len(open_descriptors())
    for path in [*ESCAPES, "file.txt", "in/file.txt", "a", "loop"] * 3:
        try:
            with Jail(root, "tool").open_path(path.format(root=root, parent=root.parent)):
                pass
        except ToolError:
            pass
    assert len(open_descriptors()) == before


# ---------------------------------------------------------------- what is never read


@pytest.mark.parametrize(
    "path",
    [
        ".ssh/id_rsa",
        "a/.ssh/known_hosts",
        ".SSH/id_rsa",
        ".ssh./id_rsa",
        ".ssh /id_rsa",
        ".ssh::$INDEX_ALLOCATION/id_rsa",
        ".aws/credentials",
        ".env",
        ".ENV",
        ".env.local",
        ".envrc",
        "a/b/.env.production",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".pgpass",
        ".dockercfg",
        ".gitconfig",
        ".git-credentials",
        ".git/config",
        ".Git/Config",
        ".git/config.worktree",
        ".git/credentials",
        ".git/modules/sub/config",
        ".config/git/credentials",
        ".config/gh/hosts.yml",
        ".docker/config.json",
        ".perdure/agents.db",
        ".\uff33\uff33\uff28/id_rsa",
    ],
)
def test_credentials_and_data_of_perdure_are_never_read(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"key")
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "folder").symlink_to(Path(path).parent)
    assert is_secret(path.split("/"))
    for way in (path, f"./{path}", "link", f"folder/{Path(path).name}"):
        with pytest.raises(ToolDenied, match="is not read"):
            read(tmp_path, way)


@pytest.mark.parametrize(
    "path",
    ["env", "a.env", "ssh/id", ".sshd", ".git/HEAD", "config", "a/.github/config", "environ"],
)
def test_names_similar_to_blocked_names_are_readable(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"text")
    assert read(tmp_path, path) == b"text"


def test_root_folder_of_a_jail_can_have_any_name(tmp_path: Path) -> None:
    root = tmp_path / ".perdure" / "work"
    root.mkdir(parents=True)
    (root / "file.txt").write_bytes(b"text")
    assert read(root, "file.txt") == b"text"
    assert read(root, f"{root}/file.txt") == b"text"
