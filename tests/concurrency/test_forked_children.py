"""A store used after `fork` fails at the call, on every backend, and never hangs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.stores.jsonl.disk.folder import Folder
from tests.fakes.postgres import PostgresServer
from tests.fakes.samples import ALL_ONLY, case

SCRIPT = Path(__file__).parent / "children" / "forking.py"
CALLS = ("append", "read", "create", "list", "search", "watch")


@pytest.fixture(params=["embedded", "postgres"])
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of empty stores: one of each embedded backend, or one on PostgreSQL."""
    if request.param == "embedded":
        yield ["memory:", f"sqlite:///{tmp_path}/s.db", f"jsonl:///{tmp_path}/s"]
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        taken = server.take()
        yield [taken]
        server.give_back(taken)


@pytest.mark.parametrize("kind", ["async", pytest.param("blocking", marks=ALL_ONLY)])
def test_store_in_forked_child_fails_at_each_call(addresses: list[str], kind: str) -> None:
    command = [sys.executable, str(SCRIPT), kind, *addresses]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)

    told = [line.split(" ", 1) for line in ended.stdout.splitlines()]
    ends = [number for number, line in enumerate(told, 1) if line[0] == "parent"]
    assert (len(ends), ended.stderr) == (len(addresses), "")
    for address, begin, end in zip(addresses, [0, *ends], ends, strict=False):
        lines = dict(told[begin:end])
        with case(address):
            for call in CALLS:
                assert "StoreUnavailable" in lines.get(call, "hung"), (call, lines)
                assert "opened before a fork; open it again" in lines[call]
            assert lines["close"] == "no error"
            assert lines["parent"] == "OK"


LOCKING = """
import os, sys
from pathlib import Path
from perdure.stores.jsonl.disk.folder import Folder

with Folder(Path(sys.argv[1]), is_synced=False).hold_lock("stream", "a"):
    pid = os.fork()
    if pid == 0:
        sys.stdin.read()
        os._exit(0)
os.write(1, b"released\\n")
os.waitpid(pid, 0)
"""


def test_forked_child_does_not_keep_session_file_lock(tmp_path: Path) -> None:
    folder = Folder(tmp_path, is_synced=False, lock_timeout_s=2)
    folder.make()
    command = [sys.executable, "-c", LOCKING, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "released\n"
        with folder.hold_lock("stream", "a"):
            pass
