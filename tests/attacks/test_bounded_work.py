"""Files, templates, servers and lines that try to stall perdure or fill its memory.

Each attempt ends within seconds, and its error contains the exceeded limit or the reason.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from perdure.apps.flow.files import graph_in
from perdure.apps.settings.layers import Configuration
from perdure.bounds.limits import InputLimits, limits, use_input_limits
from perdure.client.agents.files.reader import agent_in
from perdure.client.conversation.workspace import git_ref_of
from perdure.client.keys import key_in_file
from perdure.egress.jsonrpc import rpc_client
from perdure.engine.flows.files.required_readings import Library
from perdure.engine.flows.files.skills import SkillShelf
from perdure.errors import ConfigError, EgressError, FormatError, LimitExceeded, PerdureError
from perdure.interop.a_society.folder import flow_folders, flow_id_in, read_folder
from perdure.interop.formats.sources.content import FileContent
from perdure.interop.imports import source_of_format
from perdure.models.scenario_yaml import load_scenario
from perdure.secrets.vault import Vault
from perdure.stores.maintenance.manifest import read_manifest
from perdure.tools.mcp.connection import Connection
from perdure.tools.mcp.server_tools import Offer, offer_tools
from perdure.tools.mcp.servers import McpServer
from perdure.tools.paths.walk import matches
from perdure.tools.spec import ToolCall
from perdure.workflow.expressions import template_of
from perdure.workflow.substitution import Fillings, fill_template
from tests.fakes.a_society import RUN, SESSION
from tests.fakes.mcp_servers import HANDWRITTEN
from tests.fakes.web_server import Request, Response, WebServer

GIGABYTE = 1 << 30
QUICK_S = 5.0
"""Limit of the processor time of an attempt; other processes do not affect it."""
STALL_S = 60.0
"""Timeout for operations that could block forever."""


@pytest.fixture(autouse=True)
def usual() -> Generator[None]:
    """Restore the built-in limits after each test."""
    yield
    use_input_limits(InputLimits())


# ---------------------------------------------------------------- files


def read_settings(place: Path) -> object:
    home = place.parent
    (home / "perdure").mkdir()
    place.rename(home / "perdure" / "config.toml")
    return Configuration(home, {"XDG_CONFIG_HOME": str(home), "HOME": str(home)})


def read_flow(place: Path) -> object:
    place.rename(place.parent / "flow.json")
    assert flow_folders(place.parent) == (place.parent,)
    assert flow_id_in(place.parent) == place.parent.name
    return read_folder(place.parent)


def read_backup(place: Path) -> object:
    place.rename(place.parent / "manifest.json")
    return read_manifest(place.parent)


def read_skill(place: Path) -> object:
    home = place.parent
    folder = home / "a-docs" / "skills" / "tests"
    folder.mkdir(parents=True)
    place.rename(folder / "SKILL.md")
    shelf = SkillShelf(home)
    if not shelf.names():
        raise ConfigError("it is no skill")  # anything but a regular file is rejected
    raise ConfigError("; ".join(shelf.faults()))


def read_index(place: Path) -> object:
    home = place.parent
    (home / "a-docs" / "indexes").mkdir(parents=True)
    place.rename(home / "a-docs" / "indexes" / "main.md")
    reader: Any = Library(home)
    return reader._text("a-docs/indexes/main.md")


def read_head(place: Path) -> object:
    (place.parent / ".git").mkdir()
    place.rename(place.parent / ".git" / "HEAD")
    if git_ref_of(place.parent) is None:
        raise ConfigError("not known")
    return None


READERS: dict[str, Callable[[Path], object]] = {
    "agent": agent_in,
    "scenario": load_scenario,
    "workflow": lambda place: graph_in(place, place.parent),
    "settings": read_settings,
    "import": FileContent,
    "key": lambda place: key_in_file(place, "sqlite:///x"),
    "flow": read_flow,
    "backup": read_backup,
    "index": read_index,
    "skill": read_skill,
    "git head": read_head,
}


def planted(kind: str, folder: Path) -> Path:
    place = folder / "planted"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "terminal":
        place.symlink_to("/dev/tty")
    else:
        with place.open("wb") as file:
            file.truncate(GIGABYTE)  # a sparse file takes no space on disk
    return place


@pytest.mark.parametrize("kind", ["fifo", "device", "terminal", "huge"])
@pytest.mark.parametrize("reader", READERS)
def test_reading_a_hostile_file_fails_quickly(tmp_path: Path, reader: str, kind: str) -> None:
    if (reader, kind) in (("import", "huge"), ("key", "huge")):
        pytest.skip("is read piece by piece" if reader == "import" else "reads its beginning only")
    home = tmp_path / "home"
    home.mkdir()
    begun, begun_cpu = time.monotonic(), time.process_time()
    with pytest.raises(PerdureError):
        READERS[reader](planted(kind, home))
    assert time.monotonic() - begun < STALL_S
    assert time.process_time() - begun_cpu < QUICK_S


def flow_folder(folder: Path) -> Path:
    """Write an A-Society folder of a flow that can be imported; return the folder of its role."""
    role = folder / "roles" / "owner"
    role.mkdir(parents=True)
    (folder / "flow.json").write_text(json.dumps(RUN))
    (role / "transcript.json").write_text(json.dumps(SESSION))
    (role / "feed.json").write_text("[]")
    return role


@pytest.mark.parametrize("kind", ["fifo", "device", "terminal", "huge"])
@pytest.mark.parametrize("name", ["transcript.json", "feed.json"])
def test_hostile_role_file_does_not_stall_a_flow_import(
    tmp_path: Path, name: str, kind: str
) -> None:
    role = flow_folder(tmp_path / "flow")
    assert read_folder(tmp_path / "flow").roles
    (role / name).unlink()
    planted(kind, role).rename(role / name)
    begun, begun_cpu = time.monotonic(), time.process_time()
    with pytest.raises(PerdureError):
        read_folder(tmp_path / "flow")
    assert time.monotonic() - begun < STALL_S
    assert time.process_time() - begun_cpu < QUICK_S


def test_import_follows_no_link_out_of_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "flow.json").write_text("{}")
    folder = tmp_path / "flow"
    folder.mkdir()
    (folder / "flow.json").symlink_to(outside / "flow.json")
    with pytest.raises(FormatError, match="a link leads out of the flow's folder"):
        read_folder(folder)


def test_folder_of_many_entries_is_refused_at_the_limit(tmp_path: Path) -> None:
    for n in range(50):
        (tmp_path / str(n)).mkdir()
    use_input_limits(InputLimits(import_folders=49))
    with pytest.raises(LimitExceeded, match=r"limits\.import_folders = 49"):
        flow_folders(tmp_path)


# ---------------------------------------------------------------- templates and globs


@pytest.mark.parametrize(
    "template",
    [
        "{{inputs.a" + " | json" * 60 + "}}",
        '{{run.outputs["n"]' + " | json" * 40 + "}}",
        "{{inputs.big}}" * 100,
        "{{inputs.big | json}}" * 100,
        '{{inputs.none | default("\\"") ' + "| json" * 50 + "}}",
    ],
)
def test_template_that_expands_beyond_the_limit_is_rejected(template: str) -> None:
    big = Fillings({"a": '"', "big": "x" * 100_000}, outputs={"n": '\\"'})
    begun = time.process_time()
    with pytest.raises(LimitExceeded, match=r"limits\.template_bytes = 4,194,304"):
        fill_template(template_of(template), big, lambda path: path)
    assert time.process_time() - begun < QUICK_S


@pytest.mark.parametrize("pattern", ["*a" * 5_000, "**/" * 5_000 + "b", "[" * 5_000, "?" * 5_000])
def test_glob_beyond_the_length_limit_is_refused(pattern: str) -> None:
    with pytest.raises(LimitExceeded, match=r"limits\.glob_characters = 1,000"):
        matches(pattern, ("a" * 255,))


@pytest.mark.parametrize("unit", ["*a", "a*", "**/", "*/", "[!b]", "[a-", "?", "*?", "a**"])
def test_glob_within_the_length_limit_is_matched_quickly(unit: str) -> None:
    pattern = (unit * limits().glob_characters)[: limits().glob_characters]
    begun = time.process_time()
    for _ in range(20):
        matches(pattern, ("a" * 255,) * 100)
    assert time.process_time() - begun < QUICK_S


# ---------------------------------------------------------------- MCP servers


def hostile(kind: str, **settings: Any) -> McpServer:
    return McpServer(name="far", command=sys.executable, args=(HANDWRITTEN, kind), **settings)


async def offer_of(kind: str, folder: Path, **settings: Any) -> Offer:
    connection = Connection(hostile(kind, **settings), Vault({}, lambda _: None), folder)
    try:
        return await offer_tools(connection)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("recursive", "contains itself"),
        ("itself", "contains itself|refers to something outside itself"),
        ("chain", "limits.mcp_schema_depth"),
        ("bomb", "limits.mcp_schema_"),
        ("deep", "limits.mcp_schema_depth"),
        ("wide", "limits.mcp_schema_parts"),
        ("enum", "limits.mcp_schema_parts"),
    ],
)
async def test_only_the_tool_with_a_hostile_schema_is_omitted(
    tmp_path: Path, kind: str, told: str
) -> None:
    offer = await offer_of(kind, tmp_path)
    assert [spec.name for spec in offer.tools] == ["mcp_far_good"]
    (left,) = offer.left_out
    assert any(part in left.reason for part in told.split("|"))


async def test_regular_expression_in_a_tool_schema_is_not_evaluated(tmp_path: Path) -> None:
    offer = await offer_of("pattern", tmp_path)
    (spec,) = (spec for spec in offer.tools if spec.name.endswith("patterned"))
    assert "pattern" not in json.dumps(spec.parameters)
    assert spec.arguments is not None
    begun = time.process_time()
    assert spec.arguments({"a": "a" * 50_000 + "!"}) == {"a": "a" * 50_000 + "!"}
    assert time.process_time() - begun < 0.5


async def test_long_mcp_tool_descriptions_are_cut(tmp_path: Path) -> None:
    offer = await offer_of("texts", tmp_path)
    assert (
        sum(len(json.dumps(spec.parameters)) + len(spec.description) for spec in offer.tools)
        < 9_000
    )


@pytest.mark.parametrize(
    ("kind", "told"), [("many", "limits.mcp_tools"), ("heavy", "limits.mcp_server_parts")]
)
async def test_thousands_of_tools_do_not_block_the_event_loop(
    tmp_path: Path, kind: str, told: str
) -> None:
    longest = [0.0]

    async def watch() -> None:
        while True:
            begun = time.thread_time()  # of the loop: other processes take no part in it
            await asyncio.sleep(0.005)
            longest[0] = max(longest[0], time.thread_time() - begun)

    watching = asyncio.create_task(watch())
    try:
        offer = await offer_of(kind, tmp_path)
    finally:
        watching.cancel()
    assert len(offer.tools) <= limits().mcp_tools
    assert any(told in left.reason for left in offer.left_out)
    assert longest[0] < 2


async def test_model_gets_only_the_allowed_tool_of_thousands(tmp_path: Path) -> None:
    offer = await offer_of("many", tmp_path, tools_allowlist=("t2999",))
    assert [spec.name for spec in offer.tools] == ["mcp_far_t2999"]


@pytest.mark.parametrize("kind", ["silent", "silent-list"])
async def test_mcp_server_that_hangs_is_abandoned(tmp_path: Path, kind: str) -> None:
    begun = time.monotonic()
    with pytest.raises(PerdureError, match=r"not ready within|did not answer in time"):
        await offer_of(kind, tmp_path, connect_timeout_s=1)
    assert time.monotonic() - begun < STALL_S


@pytest.mark.all_only
async def test_endless_line_ends_the_mcp_server(tmp_path: Path) -> None:
    use_input_limits(InputLimits(mcp_answer_bytes=1_000_000))
    begun = time.monotonic()
    with pytest.raises(PerdureError):
        await offer_of("endless-line", tmp_path, connect_timeout_s=30)
    assert time.monotonic() - begun < STALL_S


async def test_hanging_call_ends_at_its_time_limit(tmp_path: Path) -> None:
    connection = Connection(hostile("silent-call"), Vault({}, lambda _: None), tmp_path)
    try:
        (spec,) = (await offer_tools(connection)).tools
        call = ToolCall("c", spec.name, {"a": "x"}, "s", "k", 1, tmp_path)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(spec.run(call), 1)
    finally:
        await connection.close()


def bombs() -> dict[str, bytes]:
    """Return small bodies by encoding; gzip and deflate expand to ten megabytes of zeros."""
    zeros = bytes(10_000_000)
    return {"gzip": gzip.compress(zeros), "deflate": zlib.compress(zeros), "br": b"\x00" * 99}


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "GZIP, gzip", "zstd"])
async def test_compressed_answer_is_refused_without_being_read(coding: str) -> None:
    body = bombs().get(coding.lower(), bombs()["gzip"])

    def answer(request: Request) -> Response:
        assert request.headers["accept-encoding"] == "identity"
        return Response(headers={"content-encoding": coding}, body=body)

    async with (
        WebServer(answer) as server,
        rpc_client(headers={}, timeout_s=60, is_local_open=True) as client,
    ):
        with pytest.raises(EgressError, match="compressed"):
            await client.post(f"http://127.0.0.1:{server.port}/mcp", json={})


# ---------------------------------------------------------------- lines

IMPORTER = """
import os, resource, subprocess, sys
words = [sys.executable, "-m", "perdure", "import", sys.argv[1], "--store", sys.argv[2]]
run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
said = run.stdout.read().decode()
_, status, used = os.wait4(run.pid, 0)
print(used.ru_maxrss * 1024)
print(said)
"""


def test_file_that_is_read_as_a_whole_has_a_size_limit(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"info": {' + " " * 2_000)
    use_input_limits(InputLimits(import_file_bytes=1_000))
    with FileContent(file) as content, pytest.raises(LimitExceeded, match=r"import_file_bytes = 1"):
        source_of_format(content, "opencode")


def test_limits_in_user_settings_apply_to_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "perdure").mkdir()
    (tmp_path / "perdure" / "config.toml").write_text("[limits]\nimport_line_bytes = 300_000\n")
    file = tmp_path / "a.jsonl"
    file.write_text('{"type":"session","version":3,"id":"b","x":"' + "y" * 900_000 + '"}\n')
    words = [
        sys.executable,
        "-m",
        "perdure",
        "import",
        str(file),
        "--store",
        f"sqlite:///{tmp_path}/s",
    ]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    run = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode != 0
    assert "exceeds limits.import_line_bytes = 300,000" in run.stderr


COMMANDS = """
import sys
from perdure.apps.cli import main
for words in (["doctor"], ["store", "info"], ["sessions", "list"]):
    assert main._exit_code([*words, "--store", sys.argv[1]]) != 0, words
"""


def test_no_command_waits_for_a_store_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.db")
    command = [sys.executable, "-c", COMMANDS, f"sqlite:///{tmp_path}/s.db"]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    subprocess.run(command, capture_output=True, timeout=60, check=True, env=environment)


@pytest.mark.all_only
@pytest.mark.full_only
def test_import_of_a_huge_line_needs_at_most_three_times_its_size(tmp_path: Path) -> None:
    size = 150_000_000
    file = tmp_path / "a.jsonl"
    with file.open("w") as out:
        out.write(
            '{"type":"session","version":3,"id":"big","timestamp":"2026-04-02T09:14:07.120Z","cwd":"/"}\n'
        )
        out.write(
            '{"type":"message","id":"00000001","parentId":null,"message":{"role":"user","content":"'
        )
        for _ in range(size // 1_000):
            out.write("word " * 200)
        out.write('"}}\n')
    command = [sys.executable, "-c", IMPORTER, str(file), f"sqlite:///{tmp_path}/s.db"]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout
    peak, said = told.split("\n", 1)
    assert "limits.import_line_bytes = 67,108,864" in said
    assert int(peak) < 3 * size
