"""The answer "always" allows exactly the calls that the text of the grant describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from perdure.session.messages import ToolCallPart
from perdure.tools.approval import Ruling, content_fact
from perdure.tools.bound_facts import bound_of
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.permission_check import bound_ruling
from perdure.tools.permissions import Permissions
from perdure.tools.spec import ToolCall

Change = Callable[[Path], object]
MAY = Permissions(
    allowed_command_globs=("sh **", "cat *", "python3 *", "python3 -m *"),
    allowed_domains=("api.example.com", "other.example.com"),
    search_endpoint="https://search.example.com/s",
)


def nothing(folder: Path) -> None:
    """Change nothing."""


def put(name: str, text: str) -> Change:
    return lambda folder: (folder / name).write_text(text)


def retarget(folder: Path) -> None:
    (folder / "l").unlink()
    (folder / "l").symlink_to("two")


@dataclass(frozen=True)
class Row:
    """A call that a person answered with "always", the texts of its grant, and other calls.

    `same` contains calls that the grant covers. `others` contains calls that need approval. Each
    call in `same` and `others` comes with a function that changes the folder before the call. A
    text can contain {folder}, which stands for the path of the folder.
    """

    tool: str
    args: Mapping[str, object]
    named: tuple[str, ...]
    same: tuple[tuple[Mapping[str, object], Change], ...]
    others: tuple[tuple[Mapping[str, object], Change], ...]


def note(content: str, path: str = "a.txt", **more: object) -> dict[str, object]:
    return {"path": path, "content": content, **more}


def get(url: str = "https://api.example.com/x?y=1", **more: object) -> dict[str, object]:
    return {"url": url, **more}


def run(line: str) -> dict[str, object]:
    return {"command": line}


POST = get(method="POST", headers={"x-a": "1"}, body="hello")
ROWS: Mapping[str, Row] = {
    "write": Row(
        "write_file",
        note("one"),
        ("write_file a.txt", content_fact(b"one"), "written to {folder}/a.txt"),
        (
            (note("one"), nothing),
            (note("one", "./a.txt"), nothing),
            (note("one"), put("a.txt", "x")),
        ),
        (
            (note("two"), nothing),
            (note("one "), nothing),
            (note(""), nothing),
            (note("one", "b.txt"), nothing),
            (note("one", append=True), nothing),
        ),
    ),
    "append": Row(
        "write_file",
        note("one", append=True),
        (content_fact(b"one"), "appended to {folder}/a.txt"),
        ((note("one", append=True), nothing),),
        ((note("one"), nothing), (note("two", append=True), nothing)),
    ),
    "write_through_a_link": Row(
        "write_file",
        note("one", "l/x"),
        ("written to {folder}/one/x",),
        ((note("one", "l/x"), nothing),),
        ((note("one", "l/x"), retarget), (note("one", "two/x"), nothing)),
    ),
    "script": Row(
        "run_command",
        run("sh go.sh"),
        (
            "run_command sh go.sh in {folder}",
            "/bin/",
            "script go.sh = {folder}/go.sh",
            "environment none",
        ),
        (
            (run("sh go.sh"), nothing),
            (run("sh 'go.sh'"), nothing),
            (run("sh go.sh"), put("k", "x")),
        ),
        (
            (run("sh go.sh"), put("go.sh", "id\n")),
            (run("sh go.sh now"), nothing),
            (run("sh -x go.sh"), nothing),
            (run("sh ./go.sh"), nothing),
            (run("python3 go.sh"), nothing),
        ),
    ),
    "script_through_a_link": Row(
        "run_command",
        run("sh l/go.sh"),
        ("script l/go.sh = {folder}/one/go.sh",),
        ((run("sh l/go.sh"), nothing),),
        ((run("sh l/go.sh"), retarget),),
    ),
    "module": Row(
        "run_command",
        run("python3 -m mod"),
        ("script mod.py = {folder}/mod.py",),
        ((run("python3 -m mod"), nothing),),
        ((run("python3 -m mod"), put("mod.py", "1")),),
    ),
    "get": Row(
        "http_request",
        get(),
        ("GET https://api.example.com/x?y=1", "headers none", "body none"),
        ((get(), nothing), (get(method="GET"), nothing)),
        (
            (get("https://api.example.com/x?y=2"), nothing),
            (get("https://api.example.com/"), nothing),
            (get("https://other.example.com/x?y=1"), nothing),
            (get(method="POST"), nothing),
            (get(body="x"), nothing),
            (get(headers={"x": "1"}), nothing),
        ),
    ),
    "post": Row(
        "http_request",
        POST,
        ("POST https://api.example.com/x?y=1", f"body {content_fact(b'hello')}", "headers"),
        ((POST, nothing),),
        (
            ({**POST, "body": "other"}, nothing),
            ({**POST, "body": None}, nothing),
            ({**POST, "headers": {"x-a": "2"}}, nothing),
            ({**POST, "headers": {}}, nothing),
            ({**POST, "method": "PUT"}, nothing),
            ({**POST, "url": "https://api.example.com/x?y=1&z"}, nothing),
        ),
    ),
    "search": Row(
        "web_search",
        {"query": "rain"},
        ("search for rain", "https://search.example.com/s"),
        (({"query": "rain"}, nothing), ({"query": "rain", "max_results": 3}, nothing)),
        (({"query": "rain tomorrow"}, nothing), ({"query": "s3cret"}, nothing)),
    ),
    "note": Row(
        "notify",
        {"title": "a", "body": "b"},
        ('notify ["a","b"]',),
        (({"title": "a", "body": "b"}, nothing),),
        (({"title": "a", "body": "c"}, nothing), ({"title": "a: b", "body": ""}, nothing)),
    ),
}

NEVER: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "edit": ("edit_file", {"path": "go.sh", "old_text": "true", "new_text": "id"}),
    "clipboard": ("read_clipboard", {}),
    "commit": ("git_commit", {"message": "x"}),
    "credential": ("run_command", run("sh -c ghp_" + "a1B2c3D4" * 5)),
    "too_long": ("run_command", run("cat " + "x" * 600)),
    "control_characters": ("write_file", note("x", "a\u202eb")),
}
"""Calls that offer no "always"."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "go.sh").write_text("true\n")
    (tmp_path / "l").symlink_to("one")
    (tmp_path / "go.sh").write_text("true\n")
    (tmp_path / "mod.py").write_text("")
    return tmp_path.resolve()


def ruling(
    folder: Path,
    tool: str,
    args: Mapping[str, object],
    *granted: str,
    permissions: Permissions = MAY,
) -> Ruling:
    """Return the decision on a call in `folder` if `granted` was answered "always" before."""
    spec = BUILTIN[tool]
    call = ToolCall("c", tool, args, "s", "", 1, folder, permissions)
    asked = ToolCallPart("c", tool, dict(args))
    bound = bound_of(spec, call, "helper")
    return bound_ruling(spec, asked, permissions, frozenset(granted), None, bound=bound)


@pytest.mark.parametrize("name", ROWS)
def test_text_of_an_always_answer_describes_exactly_the_allowed_call(
    folder: Path, name: str
) -> None:
    row = ROWS[name]
    asked = ruling(folder, row.tool, row.args)
    assert asked.decision == "ask"
    assert asked.grant is not None
    for text in row.named:
        assert text.format(folder=folder) in asked.grant
    for args, change in row.same:
        change(folder)
        assert ruling(folder, row.tool, args, asked.grant).decision == "run", args


@pytest.mark.parametrize("name", ROWS)
def test_always_answer_allows_no_call_with_other_arguments(folder: Path, name: str) -> None:
    row = ROWS[name]
    asked = ruling(folder, row.tool, row.args)
    assert asked.grant is not None
    for args, change in row.others:
        change(folder)
        assert ruling(folder, row.tool, args, asked.grant).decision != "run", args


@pytest.mark.parametrize("name", ROWS)
def test_always_answer_for_one_call_does_not_allow_other_tools_or_folders(
    folder: Path, name: str
) -> None:
    """Compare every grant with every other row, and with the same call in another folder."""
    granted = ruling(folder, ROWS[name].tool, ROWS[name].args).grant
    assert granted is not None
    for other, row in ROWS.items():
        if other != name:
            assert ruling(folder, row.tool, row.args, granted).decision == "ask", other
    row = ROWS[name]
    if row.tool in ("write_file", "run_command"):
        elsewhere = folder / "two"
        (elsewhere / "mod.py").write_text("")
        (elsewhere / "l").symlink_to(".")
        assert ruling(elsewhere, row.tool, row.args, granted).decision == "ask"


def test_always_answer_does_not_allow_a_request_with_a_credential(
    folder: Path,
) -> None:
    args = {"url": "https://api.example.com/v1"}
    asked = ruling(folder, "http_request", args)
    assert asked.grant is not None
    assert ruling(folder, "http_request", args, asked.grant).decision == "run"
    signing = msgspec.structs.replace(MAY, credentials={"api.example.com": "{{secrets.API}}"})
    signed = ruling(folder, "http_request", args, asked.grant, permissions=signing)
    assert signed.decision == "ask"
    assert signed.grant is not None
    assert "credential" in signed.grant


@pytest.mark.parametrize("name", NEVER)
def test_some_kinds_of_calls_never_get_an_always_answer(folder: Path, name: str) -> None:
    tool, args = NEVER[name]
    assert ruling(folder, tool, args).grant is None
