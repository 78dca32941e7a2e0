"""The programs of the guides and of `examples` pass mypy and basedpyright, both strict."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples").rglob("*.py"))
BLOCK = re.compile(r"^(?:<!-- (\S+) -->\n)?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
UNUSED = "# pyright: reportUnusedVariable=false\n"
"""Guides assign some values only to show what a call returns."""


def blocks(document: str) -> list[tuple[str, str]]:
    """The blocks of Python code in a document, each with the name above it."""
    return BLOCK.findall((REPOSITORY / document).read_text("utf-8"))


def in_function(codes: list[str]) -> str:
    """Code that awaits at the top level, as one function."""
    return f"{UNUSED}async def guide() -> None:\n{textwrap.indent(chr(10).join(codes), '    ')}"


@pytest.fixture
def programs(tmp_path: Path) -> list[Path]:
    """The whole programs of the guides, as files."""
    notebook = json.loads((REPOSITORY / "examples" / "notebook.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (readme,) = (code for _, code in blocks("README.md") if code.startswith("# trip.py\n"))
    files = {
        "library_guide.py": in_function([code for _, code in blocks("docs/guides/library.md")]),
        "notebook_cells.py": in_function(["".join(cell["source"]) for cell in cells]),
        "readme_trip.py": readme,
        "shop.py": dict(blocks("docs/guides/serving.md"))["shop.py"],
        "trip.py": dict(blocks("docs/guides/testing.md"))["trip.py"],
    }
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    return [tmp_path / name for name in files]


def checked(checker: str, *arguments: str | Path) -> None:
    """Run a type checker, and check that it reports no error."""
    program = Path(sys.executable).with_name(checker)
    done = subprocess.run(
        [program, *arguments], check=False, capture_output=True, cwd=REPOSITORY, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.all_only
@pytest.mark.timeout(900)  # without its cache mypy reads every library: 48 CPU-seconds
def test_programs_pass_mypy_strict(programs: list[Path], tmp_path: Path) -> None:
    tests = [tmp_path / "conftest.py", tmp_path / "test_trip.py"]
    for file in tests:
        codes = [code for name, code in blocks("docs/guides/testing.md") if name == file.name]
        file.write_text("\n\n".join(codes), encoding="utf-8")
    checked("mypy", "--strict", *EXAMPLES, *programs, *tests)


@pytest.mark.all_only
def test_programs_of_guides_pass_basedpyright(programs: list[Path]) -> None:
    checked("basedpyright", *programs)  # `make check` checks those of `examples`
