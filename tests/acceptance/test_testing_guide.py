"""The tests of docs/guides/testing.md, run by pytest as a reader runs them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import perdure
from perdure import assistant, tool_call
from perdure.testing import ScriptedModel
from tests.conftest import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guides" / "testing.md"
BLOCK = re.compile(r"^<!-- (\S+\.py) -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


async def record(file: Path) -> None:
    """Write the session that the guide records with a real model."""
    answers = ["Take an umbrella.", assistant(tool_call("c1", "book", {})), "Booked."]
    agent = perdure.Agent("helper", model="test:any")
    async with (
        perdure.open("memory:") as store,
        perdure.Runtime(store, agents=[agent], models=ScriptedModel(answers)) as runtime,
    ):
        chat = await runtime.start(agent)
        for said in ("Do I need an umbrella in Oslo?", "Then book the Aurora"):
            await chat.send(said)
        await chat.session.export("perdure", file)


@pytest.mark.full_only
def test_every_test_of_the_testing_guide_passes(tmp_path: Path) -> None:
    files: defaultdict[str, str] = defaultdict(str)
    for name, code in BLOCK.findall(GUIDE.read_text("utf-8")):
        files[name] += code + "\n\n"
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    asyncio.run(record(tmp_path / "trip.jsonl"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pasyncio", "-oasyncio_mode=auto"],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": "."},
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "8 passed" in done.stdout
