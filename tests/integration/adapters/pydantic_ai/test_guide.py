"""The examples of docs/guides/pydantic-ai.md run offline, twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

GUIDE = REPOSITORY / "docs" / "guides" / "pydantic-ai.md"


def test_guide_examples_give_the_same_output_when_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    whole = [block for block in blocks if "asyncio.run" in block]
    for block in whole * 2:
        exec(compile(block, str(GUIDE), "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out.splitlines()
    assert said == ['{"read_inbox":"2 new messages"}'] * 2
