"""A web service ends at SIGTERM, however many of its turns wait for people."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "children" / "web_service.py"
GRACE_S = 2
PATIENCE_S = 60
SESSIONS = [f"s{number}" for number in range(10)]


class Client:
    """Requests to the service that runs as `process` and listens on `port`."""

    def __init__(self, port: int, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._port = port

    def get(self, path: str) -> Any:
        """The response to GET, as JSON."""
        with self._opened(path, "GET") as response:
            return json.load(response)

    def post(self, path: str) -> Any:
        """The response to POST, as JSON; None without a body."""
        with self._opened(path, "POST") as response:
            return json.loads(response.read() or b"null")

    def stream(self, path: str) -> Any:
        """The response to GET, whose body is read as it arrives."""
        return self._opened(path, "GET")

    def questions(self, count: int) -> list[str]:
        """The open questions, once there are `count`."""
        deadline = time.monotonic() + PATIENCE_S
        while len(found := self.get("/questions")) != count:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    def terminated(self) -> tuple[float, str]:
        """End the process with SIGTERM; return the time that this took, and its stderr.

        A process that waited for a person to answer would end only after its grace period.
        """
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode in (0, -signal.SIGTERM), err
        return time.monotonic() - begun, err

    def _opened(self, path: str, method: str) -> Any:
        url = f"http://127.0.0.1:{self._port}{path}"
        asked = urllib.request.Request(url, method=method)
        return urllib.request.urlopen(asked, timeout=PATIENCE_S)


@contextmanager
def service(folder: Path) -> Generator[Client]:
    address = f"sqlite:///{folder / 'store.db'}"
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), address, str(folder), str(GRACE_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield Client(int(process.stdout.readline()), process)
        finally:
            process.kill()


def errors_in(log: str) -> list[str]:
    """The last line of each traceback in `log`."""
    return re.findall(r"^[\w.]+(?:Error|Exception)\b.*", log, re.MULTILINE)


@pytest.mark.parametrize("clients", [pytest.param(0, marks=pytest.mark.all_only), 20])
def test_service_ends_at_sigterm_and_the_next_process_finds_its_questions(
    tmp_path: Path, clients: int
) -> None:
    with service(tmp_path) as client, ExitStack() as streams:
        for session in SESSIONS:
            client.post(f"/send/{session}")
        asked = client.questions(10)
        for number in range(clients):
            stream = streams.enter_context(client.stream(f"/events/{SESSIONS[number % 10]}"))
            assert stream.readline() == b"data: session:started\n"
        took_s, err = client.terminated()
        figure = f"ended {took_s:.2f} s after SIGTERM with {clients} SSE clients"
        sys.stdout.write(f"{figure}, {len(asked)} questions open\n")
        assert "never retrieved" not in err
        # uvicorn logs the requests that it cancels itself; nothing else may have gone wrong.
        assert all("timeout graceful shutdown exceeded" in raised for raised in errors_in(err))
    with service(tmp_path) as client:
        assert sorted(client.questions(10)) == sorted(asked)
        with ThreadPoolExecutor(10) as resuming:
            texts = resuming.map(client.post, [f"/resume/{session}" for session in SESSIONS])
            for question in asked:
                client.post(f"/answer/{question}")
            assert [each["text"] for each in texts] == ["done"] * 10
        assert client.questions(0) == []
        _, err = client.terminated()
        assert all("waits for an answer" in line for line in err.splitlines())
    assert [(tmp_path / each / "a.txt").read_text() for each in SESSIONS] == ["x"] * 10
