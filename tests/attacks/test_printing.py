"""No text of a log, a file or a setting reaches the terminal as a control character."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.apps.cli.main import main
from perdure.apps.terminal.style import CODES
from perdure.client.open import open as open_store
from tests.fakes.command_lines import LINES, SKIPPED, S, commands, line_of, ordered
from tests.fakes.marked_log import MARK, OWN, plant_marks

CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ud800-\udfff]"
)
OF_RICH = re.compile(r"\x1b\[(?:\?25[lh]|\d*[AKJ]|[\d;]*m)|\r")
"""Control codes that rich prints; `leaks_in` looks for the marker before it removes these codes."""


class Terminal:
    """A pseudo-terminal in place of the standard streams, and the text written to it."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8", errors="replace")
        self._pieces: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._master, 65_536):
                self._pieces.append(piece)
        except OSError:  # the other side was closed
            return

    def written(self) -> str:
        """Return the complete output, once the other side is closed."""
        self.stream.close()
        self._reader.join(60)
        os.close(self._master)
        return b"".join(self._pieces).decode(errors="replace").replace("\r\n", "\n")


@pytest.fixture
def marked_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a marked store, settings and agents in it, in which commands run."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PERDURE_")]:
        monkeypatch.delenv(name)
    address = f"sqlite:///{tmp_path / 'store.db'}"
    (tmp_path / "home").mkdir()
    settings = {"HOME": str(tmp_path / "home"), "PERDURE_STORE": address, "TERM": "xterm"}
    for name, value in {**settings, "COLUMNS": "100", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)

    async def fill() -> int:
        async with open_store(address) as store:
            return await plant_marks(store.backend)

    assert asyncio.run(fill()) > 60
    written = json.dumps(MARK)
    agents = tmp_path / ".perdure" / "agents"
    agents.mkdir(parents=True)
    (agents / "marked.agent.yaml").write_text(
        f"id: marked\nname: {written}\ndescription: {written}\n"
        f"system_prompt: {written}\nmodel: scripted:echo\n",
        "utf-8",
    )
    (tmp_path / ".perdure" / "config.toml").write_text('[store]\nnamespace = "default"\n', "utf-8")
    user = tmp_path / "home" / ".config" / "perdure"
    user.mkdir(parents=True)
    plain = json.dumps(MARK.replace("\0", ""))
    server = f"[mcp.servers.odd]\ncommand = {plain}\nargs = [{plain}]\n"
    (user / "config.toml").write_text(server.replace("\x7f", "\\u007f"), "utf-8")
    (tmp_path / "workflow.yaml").write_text(f"name: {written}\nnodes: {written}\n", "utf-8")
    said = {"role": "user", "content": [{"type": "text", "text": MARK}]}
    at = "2026-04-02T09:14:07.120Z"
    recording = [
        {"type": "session", "version": 3, "id": "odd-session", "timestamp": at, "cwd": MARK},
        {"type": "message", "id": "a", "parentId": None, "timestamp": at, "message": said},
        {"type": f"odd{MARK}", "id": "b", "parentId": "a", "timestamp": at},
    ]
    name = f"recording{MARK.replace(chr(0), '')}.jsonl"
    (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in recording), "utf-8")
    return tmp_path


def said_by(
    words: list[str], monkeypatch: pytest.MonkeyPatch, errors: io.TextIOBase | None = None
) -> str:
    """Return the output of `perdure` with `words` at a terminal, stdout and stderr together.

    If `errors` is given, stderr is written to `errors` and not to the terminal.
    """
    terminal = Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", terminal.stream)
        patched.setattr(sys, "stderr", errors or terminal.stream)
        main(words)
    return terminal.written()


def leaks_in(said: str) -> list[str]:
    """Return the control characters in `said` that perdure did not write, with positions."""
    found = [said[max(0, at - 40) : at + 20] for at in places(said, OWN)]
    for code in CODES:
        said = said.replace(code, "")
    said = OF_RICH.sub("", said)
    return found + [said[max(0, m.start() - 40) : m.end() + 20] for m in CONTROLS.finditer(said)]


def places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


@pytest.mark.timeout(600)  # every command, one after the other, beside busy processes
def test_no_command_prints_control_characters_from_a_store(
    marked_world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = set(commands())
    assert known == set(LINES) | set(SKIPPED), "every command is listed here"
    order = ordered()
    leaks: dict[str, list[str]] = {}
    seen = 0
    for number, command in enumerate(order):
        words = line_of(command, marked_world, number)
        said = said_by(words, monkeypatch)
        seen += "OWN" in said
        if found := leaks_in(said):
            leaks[" ".join(words)] = found[:3]
    assert not leaks
    assert seen > 15  # many show the marker


@pytest.mark.all_only
@pytest.mark.timeout(600)  # every command, one after the other, beside busy processes
def test_command_with_json_escapes_every_control_character(
    marked_world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaks: dict[str, list[str]] = {}
    seen = 0
    order = ordered()
    for number, command in enumerate(order):
        words = line_of(command, marked_world, number)
        if command != "export":
            words.append("--json")
        errors = io.StringIO()
        said = said_by(words, monkeypatch, errors)
        for line in errors.getvalue().splitlines():
            if line.startswith("{"):
                assert json.loads(line)["error"]["code"]
            said += line
        seen += "OWN" in said
        if found := [said[max(0, m.start() - 40) : m.end()] for m in CONTROLS.finditer(said)]:
            leaks[" ".join(words)] = found[:3]
        if command in ("sessions show", "sessions context", "sessions list", "flow show"):
            json.loads(said.splitlines()[0])
            assert "\\u202e" in said or "OWN" not in said
    assert not leaks
    assert seen >= 15


def test_markdown_export_to_a_file_contains_no_control_character(
    marked_world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = marked_world / f"out{MARK.replace(chr(0), '')}.md"
    words = ["export", S, "--format", "markdown", "--all-branches", "-o", str(file)]
    assert leaks_in(said_by(words, monkeypatch)) == []
    text = file.read_text(encoding="utf-8")
    assert "OWN" in text
    assert CONTROLS.search(text) is None


@pytest.mark.parametrize("extra", [[], ["--json"]])
@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ana:hunter22@127.0.0.1:1/db",
        "POSTGRESQL://ana:hunter22@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=ana&password=hunter22",
    ],
)
def test_doctor_masks_the_password_in_a_store_address(
    address: str, extra: list[str], marked_world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = said_by(["doctor", "--store", address, *extra], monkeypatch)
    said += said_by(["sessions", "list", "--store", address, *extra], monkeypatch)
    assert "127.0.0.1" in said
    assert "hunter22" not in said
