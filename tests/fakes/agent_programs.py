"""The real Claude Code, Codex and opencode, from their npm packages (`make programs`).

The programs run with an empty home folder and call a server on loopback.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.interop.continuation import Program
from tests.fakes import anthropic_server, responses_server
from tests.fakes.model_server import ModelServer, running, streaming
from tests.fakes.openai_server import ServerAnswer, answering
from tests.fakes.plans import Plan

REPOSITORY = Path(__file__).resolve().parents[2]
_PACKAGES = REPOSITORY / ".programs" / "agents" / "node_modules"
_BINARIES: Mapping[Program, str] = {
    "claude-code": "@anthropic-ai/claude-code-*/claude",
    "codex": "@openai/codex-*/vendor/*/bin/codex",
    "opencode": "opencode-*/bin/opencode",
}
_PATIENCE_S = 100


def installed(program: Program) -> Path | None:
    """Return the command of `program`; None if it is not installed."""
    return min(_PACKAGES.glob(_BINARIES[program]), default=None)


@asynccontextmanager
async def model_for(program: Program, answer: str) -> AsyncGenerator[ModelServer]:
    """Serve the API that `program` calls; every request gets `answer`."""
    server = ModelServer(lambda _: [], anthropic_server.error_body)
    match program:
        case "claude-code":
            server.will(streaming(anthropic_server.events(Plan(text=answer))))
        case "codex":
            server.will(streaming(responses_server.events(Plan(text=answer))))
        case _:
            server.will(answering(ServerAnswer(text=answer)))
    async with running(server):
        yield server


async def run(
    program: Program, command: Path, *words: str, home: Path, cwd: Path, server: ModelServer
) -> str:
    """Run `program` once without a terminal and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        command,
        *_words(program, server.url),
        *words,
        cwd=cwd,
        env=_environment(home, server.url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), _PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, out.decode()
    return out.decode()


def _words(program: Program, address: str) -> tuple[str, ...]:
    """Return the arguments with which `program` sends one request to the server at `address`."""
    if program == "claude-code":
        return ("--print",)
    if program == "opencode":
        return ()
    provider = f'{{name="local",base_url="{address}/v1",wire_api="responses",env_key="LOCAL_KEY"}}'
    settings = (f"model_providers.local={provider}", 'model_provider="local"')
    options = (word for setting in settings for word in ("--config", setting))
    return ("exec", "--skip-git-repo-check", *options, "--model", "gpt-5")


def _environment(home: Path, address: str) -> dict[str, str]:
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CODEX_HOME": str(home / ".codex"),
        "LOCAL_KEY": "none",
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": address,
        "OPENCODE_CONFIG_CONTENT": json.dumps(_opencode(address)),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _opencode(address: str) -> Mapping[str, object]:
    options = {"baseURL": address, "apiKey": "none"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": options,
        "models": {"tides": {"name": "Tides"}},
    }
    return {
        "provider": {"local": provider},
        "model": "local/tides",
        "small_model": "local/tides",
        "autoupdate": False,
    }
