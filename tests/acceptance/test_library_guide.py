"""The examples of docs/guides/library.md, run in their order against a store on disk."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path

import pytest

from tests.fakes.samples import case

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "library.md"
PRINTED = re.compile(r"^ *print\(.*\) +# (.*)$", re.MULTILINE)


async def test_every_example_of_the_library_guide_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    names: dict[str, object] = {"__name__": "guide"}
    for number, example in enumerate(examples):
        with case(f"example {number}: {example[:60]!r}"):
            code = compile(example, f"example {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                await asyncio.wait_for(eval(code, names), 60)
            else:
                await asyncio.to_thread(exec, code, names)
            assert capsys.readouterr().out.splitlines() == PRINTED.findall(example)
    assert len(examples) >= 19
