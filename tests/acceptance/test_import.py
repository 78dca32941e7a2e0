"""The modules that a program loads by importing perdure: only the modules that it needs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

FOREIGN = (
    "anthropic",
    "click",
    "google",
    "httpx",
    "httpx2",
    "keyring",
    "mcp",
    "openai",
    "opentelemetry",
    "psycopg",
    "pydantic",
    "pydantic_ai",
    "requests",
    "rich",
    "ruamel",
    "typer",
    "urllib3",
)
PROGRAMS = {
    "the import alone": "import perdure",
    "what every program uses": "import perdure; perdure.open, perdure.Runtime, perdure.Agent",
    "a store": "import perdure, asyncio\n"
    "async def main():\n"
    "    async with perdure.open('memory:') as store:\n"
    "        await (await store.create()).append(perdure.user('hi'))\n"
    "asyncio.run(main())",
    "a turn": "import perdure, asyncio\n"
    "async def main():\n"
    "    async with perdure.open('memory:') as store:\n"
    "        server = perdure.McpServer(name='u', command='no')\n"
    "        echo = {'model': 'scripted:echo', 'tools': ['read_file']}\n"
    "        agent = perdure.Agent('a', mcp_servers=[server], **echo)\n"
    "        async with perdure.Runtime(store) as runtime:\n"
    "            chat = await runtime.start(agent, tools=['read_file'])\n"
    "            await chat.send('hi')\n"
    "asyncio.run(main())",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_import_loads_no_provider_http_client_or_command_line(program: str) -> None:
    report = f"{program}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.decode().split()}
    assert loaded.isdisjoint(FOREIGN)


def test_import_of_perdure_alone_loads_none_of_its_modules() -> None:
    report = "import perdure, sys; print(*(m for m in sys.modules if m.startswith('perdure.')))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, check=True)
    assert done.stdout.split() == []


def test_help_and_completion_load_no_command_and_no_parser() -> None:
    for words, unneeded in (
        (["--help"], ("typer", "asyncio", "perdure.apps.cli.program", "perdure.client")),
        (["flow", "run", "-h"], ("typer", "asyncio", "perdure.apps.flow", "perdure.client")),
        (["__complete", "fish", "sess"], ("typer", "asyncio", "perdure.apps.cli.program")),
        (["__complete", "fish", "sessions", "show", "0"], ("typer", "perdure.apps.cli.program")),
    ):
        report = f"from perdure.apps.cli.main import main; main({words}); import sys\n"
        report += "print('LOADED', *sys.modules)"
        done = subprocess.run([sys.executable, "-c", report], capture_output=True, check=True)
        loaded = done.stdout.decode().partition("LOADED")[2].split()
        assert "perdure.apps.cli.main" in loaded
        assert not [name for name in loaded if name.startswith(unneeded)], words


def test_completion_for_an_unencrypted_store_file_loads_no_store_modules(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'store.db'}"

    async def fill() -> str:
        async with perdure.open(address, is_trusted=False) as store:
            session = await store.create(title="Tide")
            await session.append(perdure.user("Hello"))
            await session.ask("Deploy now?", ("yes", "no"))
            return session.id

    session = asyncio.run(fill())
    unneeded = (
        *FOREIGN,
        "asyncio",
        "ssl",
        "perdure.apps.cli.program",
        "perdure.apps.store_access",
        "perdure.client.open",
        "perdure.client.store",
        "perdure.context.build",
        "perdure.engine.turns.executor",
        "perdure.stores.sqlite.connections",
        "perdure.stores.sqlite.store",
    )
    lines = (
        (["sessions", "show", session[:4]], session),
        (["sessions", "show", "tid"], session),
        (["sessions", "show", ""], session),
        (["sessions", "read", session[:10], ""], "user: Hello"),
        (["inbox", "answer", ""], "Deploy now?"),
        (["inbox", "answer", f"{session}/1", "y"], "yes"),
    )
    report = "import sys; from perdure.apps.cli.main import main\n"
    for words, _ in lines:
        report += f"main({['__complete', 'fish', *words]}); print('LOADED', *sys.modules)\n"
    environment = {**os.environ, "PERDURE_STORE": address}
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, check=True, env=environment
    )
    rest = done.stdout.decode()
    for words, offered in lines:
        answer, _, rest = rest.partition("LOADED")
        loaded, _, rest = rest.partition("\n")
        assert offered in answer
        assert not [name for name in loaded.split() if name.startswith(unneeded)], words
