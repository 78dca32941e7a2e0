"""Two services as real processes, and the two providers that they call over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.anthropic_server import anthropic_server
from tests.fakes.forked_commands import run_command
from tests.fakes.model_server import ModelServer
from tests.fakes.openai_server import openai_server

CHILDREN = Path(__file__).parents[1] / "children"
PATIENCE_S = 180


async def until(holds: Callable[[], bool]) -> None:
    """Wait until `holds` is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what another process does sets no event here
            await asyncio.sleep(0.02)


@dataclass
class Desk:
    """The support desk, with its folder, its providers, and the process that serves it."""

    folder: Path
    openai: ModelServer
    anthropic: ModelServer
    process: asyncio.subprocess.Process | None = None
    port: int = 0
    children: list[asyncio.subprocess.Process] = field(
        default_factory=list[asyncio.subprocess.Process]
    )

    @property
    def address(self) -> str:
        """The address of the desk's store."""
        return f"sqlite:///{self.folder / 'desk.db'}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the desk's processes: both providers, and only the desk's folder."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_DATA_HOME": str(self.folder / "data"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "OPENAI_BASE_URL": self.openai.url,
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "ANTHROPIC_BASE_URL": self.anthropic.url,
            "ANTHROPIC_API_KEY": "sk-test-0123456789abcdef",
        }

    async def run(self, *command: str | Path) -> asyncio.subprocess.Process:
        """A process that runs during the test and is ended with it."""
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            env=self.environment,
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.children.append(process)
        return process

    async def open(self) -> None:
        """Serve the support desk in a new process."""
        program = CHILDREN / "support_desk.py"
        self.process = await self.run(sys.executable, program, self.address, self.folder)
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S)
        self.port = int(line)

    async def kill(self) -> None:
        """End the service with ``kill -9``."""
        assert self.process is not None
        self.process.kill()
        await self.process.communicate()

    async def close(self) -> str:
        """End the service with SIGTERM; return its stderr."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        _, err = await asyncio.wait_for(self.process.communicate(), PATIENCE_S)
        assert self.process.returncode in (0, -signal.SIGTERM), err
        return err.decode()

    async def say(self, ticket: str, text: str) -> None:
        """Begin a turn."""
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            url = f"http://127.0.0.1:{self.port}/tickets/{ticket}"
            (await client.post(url, content=text)).raise_for_status()

    async def answer(self, ticket: str, text: str) -> dict[str, Any]:
        """Wait until the newest message of the ticket is `text`; return this message."""
        shown: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(timeout=PATIENCE_S) as client:
            while shown.get("text") != text:
                await asyncio.sleep(0.02)
                url = f"http://127.0.0.1:{self.port}/tickets/{ticket}"
                shown = (await client.get(url)).raise_for_status().json()
        return shown

    async def perdure(self, *words: str) -> Any:
        """Return the JSON that another process, the command ``perdure``, prints."""
        line = (*words, "--store", self.address, "--json")
        ended = await asyncio.to_thread(run_command, line, self.environment, self.folder)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    async def question(self) -> dict[str, Any]:
        """The one open question, as another process finds it."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE_S):
            while not found:
                found = await self.perdure("inbox")
        (asked,) = found
        return asked


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    """A running support desk."""
    async with AsyncExitStack() as stack:
        openai = await stack.enter_async_context(openai_server())
        anthropic = await stack.enter_async_context(anthropic_server())
        made = Desk(tmp_path, openai, anthropic)
        try:
            await made.open()
            yield made
        finally:
            for process in made.children:
                if process.returncode is None:
                    process.kill()
                    await process.communicate()
