"""Compare the transcript in docs/guides/new-user.md with a new run, or rewrite it.

`python -m scripts.guide_transcript` reports differences between the guide and the real output;
`--write` updates the guide. The rules are the same as in `readme_transcript`. The home folder
contains the sample files that the tests use for each program. The model is a local server with
Ollama's protocol and a constant answer.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.readme_transcript import REPOSITORY, Place, main
from tests.fakes.openai_server import ServerAnswer, answering, openai_server

GUIDE = REPOSITORY / "docs" / "guides" / "new-user.md"
FIXTURES = REPOSITORY / "tests" / "fixtures"
ANSWER = "Twelve in spring, nine now: three fell in the storm."

HOME = {
    ".claude/projects/-home-ana-orchard": ("claude_code/tools.jsonl", "claude_code/agents.jsonl"),
    ".codex/sessions/2026/04/01": ("codex/rollout.jsonl",),
    ".operator/sessions": ("operator/current.jsonl",),
    ".pi/agent/sessions/--home-ana-orchard--": ("pi/v3.jsonl", "pi/v2.jsonl"),
}
"""Maps folders below home to the histories in them."""


def fill(home: Path) -> None:
    """Write histories into the folders of their programs, and a file of no known program."""
    for folder, files in HOME.items():
        (home / folder).mkdir(parents=True)
        for file in files:
            shutil.copy(FIXTURES / file, home / folder)
    (home / "notes").mkdir()
    (home / "notes" / "harvest.jsonl").write_text('{"kind": "no session"}\n', encoding="utf-8")


@contextmanager
def place() -> Generator[Place]:
    """Provide the home folder, and a model that answers, until the block ends."""
    address: list[str] = []
    is_up, is_over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with openai_server() as server:
            server.will(answering(ServerAnswer(text=ANSWER)))
            address.append(server.url)
            is_up.set()
            await asyncio.to_thread(is_over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    is_up.wait()
    try:
        yield Place(fill, {"OLLAMA_BASE_URL": address[0]}, "/home/ana")
    finally:
        is_over.set()
        thread.join()


def run_guide(arguments: Sequence[str]) -> int:
    """Check the guide, or update it with ``--write``; return the exit code."""
    with place() as here:
        return main(arguments, GUIDE, here)


if __name__ == "__main__":
    sys.exit(run_guide(sys.argv[1:]))
