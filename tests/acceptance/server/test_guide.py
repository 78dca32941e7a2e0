"""The guide on serving: its program is served, and its calls return the documented answers."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import httpx
import pytest

from perdure.server import TokenFile, TokenRecord

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "serving.md"


def environment(folder: Path) -> dict[str, str]:
    """The environment of a process in `folder`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "PERDURE_STORE": f"sqlite:///{folder / 'shop.db'}",
        "PERDURE_TOKENS": str(folder / "tokens.json"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


async def address_of(process: asyncio.subprocess.Process) -> str:
    """The address that a server prints, without its code."""
    assert process.stdout is not None
    async with asyncio.timeout(90):
        while line := await process.stdout.readline():
            if found := re.match(rb"(http://\S+)/#code=[0-9a-f]{32}\s", line):
                return found[1].decode()
    raise AssertionError("it printed no address")


@pytest.mark.all_only
@pytest.mark.full_only
async def test_server_program_of_the_guide_runs(tmp_path: Path) -> None:
    program = re.findall(r"<!-- shop.py -->\n```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[0]
    (tmp_path / "shop.py").write_text(program.replace("openai:gpt-5", "scripted:echo"))
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.create(TokenRecord("k", "", "write", 0, subject="ana"), os.urandom(32))
    words = ("serve", "shop:runtime", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", *words),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        headers = {"Authorization": f"Bearer {token}"}
        url = await address_of(process)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            new = {"text": "Where is order 1041?"}
            sent = await client.post("/v1/messages", json=new)
            assert sent.status_code == 201
            (shown,) = re.findall(r"-d '{\"text\": .*\n({.*})", GUIDE.read_text())
            assert list(sent.json()) == re.findall(r'"(\w+)":', shown)
            session = sent.json()["sessionId"]
            first = (await client.get(f"/v1/sessions/{session}/entries")).json()["items"][0]
            assert first["kind"] == "session_started"
            assert (await client.get(f"/v1/sessions/{session}")).json()["subject"] == "ana"
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.all_only
async def test_demo_serves_its_store(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure", "demo", "--serve"),
        env=environment(tmp_path) | {"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with httpx.AsyncClient(base_url=await address_of(process), timeout=60) as client:
            assert "perdure" in (await client.get("/")).text
    finally:
        process.terminate()
        await process.communicate()
