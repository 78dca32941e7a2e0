"""Nothing of perdure, asyncio or a driver is printed on stderr, whatever fault a program meets."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fakes.postgres import PostgresServer, serving
from tests.fakes.samples import ALL_ONLY

SCRIPT = Path(__file__).parent / "children" / "faulty_program.py"
FAULTS = ("left_open", "stopped_loop", "cancelled", "closed_early")
BACKENDS = ("memory", "sqlite", "jsonl", "postgres")
CUTS = 6
_CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name LIKE 'perdure%' AND datname = current_database()
"""


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        taken = server.take()
        yield taken
        server.give_back(taken)
    else:
        places = {"sqlite": f"sqlite:///{tmp_path}/s.db", "jsonl": f"jsonl:///{tmp_path}/s"}
        yield places.get(request.param, "memory:")


@pytest.mark.parametrize(
    ("address", "fault"),
    [  # `make test` runs each fault on one backend
        pytest.param(each, fault, marks=ALL_ONLY if (number + turn) % len(FAULTS) else ())
        for number, each in enumerate(BACKENDS)
        for turn, fault in enumerate(FAULTS)
    ],
    indirect=["address"],
)
def test_program_prints_nothing_to_stderr_after_a_fault(address: str, fault: str) -> None:
    command = [sys.executable, str(SCRIPT), address, fault]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


def test_broken_database_connections_print_nothing_to_stderr(postgres: PostgresServer) -> None:
    address = postgres.take()
    command = [sys.executable, str(SCRIPT), address, "cut"]
    with (
        psycopg.connect(address, autocommit=True) as db,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        for _ in range(CUTS):
            time.sleep(0.05)
            db.execute(_CUT)
        out, err = process.communicate("\n", timeout=60)
    postgres.give_back(address)
    assert (out, err) == ("done\n", "")


@pytest.mark.all_only
def test_killed_database_server_causes_no_output_on_stderr() -> None:
    with serving(is_own=True) as server:
        command = [sys.executable, str(SCRIPT), server.new_database(), "cut"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            time.sleep(0.2)
            server.kill()
            time.sleep(1)
            server.start()
            time.sleep(0.5)
            out, err = process.communicate("\n", timeout=90)
    assert (out, err) == ("done\n", "")
