"""Files of other programs, written for the tests, and helpers to check what was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import strategies as st

from perdure.interop.formats.items import Item, ParsedSource, body_without_source
from perdure.interop.formats.registry import FORMATS
from perdure.interop.formats.sources.reader import BOUNDS, Bounds
from perdure.interop.imports import import_source
from perdure.interop.reports import Format, FormatName, ImportReport
from perdure.session.ids import StreamId, entry_id
from perdure.session.messages import Message
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
PI = tuple(sorted(path.name for path in (FIXTURES / "pi").glob("*.jsonl")))
CLAUDE_CODE = tuple(sorted(path.name for path in (FIXTURES / "claude_code").glob("*.jsonl")))

OPERATOR = tuple(sorted(path.name for path in (FIXTURES / "operator").glob("*.jsonl")))
CODEX = tuple(sorted(path.name for path in (FIXTURES / "codex").glob("*.jsonl")))

OPENCODE = tuple(sorted(path.name for path in (FIXTURES / "opencode").glob("*.json")))


def pi_file(name: str) -> bytes:
    """Return a session file as a version of pi writes it."""
    return (FIXTURES / "pi" / name).read_bytes()


def claude_file(name: str) -> bytes:
    """Return a transcript as Claude Code writes it."""
    return (FIXTURES / "claude_code" / name).read_bytes()


def operator_file(name: str) -> bytes:
    """Return a session file as a version of Operator writes it."""
    return (FIXTURES / "operator" / name).read_bytes()


def codex_file(name: str) -> bytes:
    """Return a rollout file as a version of Codex writes it."""
    return (FIXTURES / "codex" / name).read_bytes()


def opencode_file(name: str) -> bytes:
    """Return a session as opencode exports it."""
    return (FIXTURES / "opencode" / name).read_bytes()


def growing_files() -> list[bytes]:
    """Return the fixtures of the programs that append whole records to their files."""
    documents = {opencode_file(name) for name in OPENCODE}
    documents.update(map(FILES["aider"][1], FILES["aider"][0]))
    documents.add((FIXTURES / "messages" / "chat.json").read_bytes())
    return [
        content
        for content in every_file()
        if content not in documents and not content.startswith(ROWS)
    ]


def _files_of(name: Format) -> tuple[tuple[str, ...], Callable[[str], bytes]]:
    folder = FIXTURES / name.replace("-", "_")
    names = sorted(path.name for path in folder.glob("*.*"))
    return tuple(names), lambda file: (folder / file).read_bytes()


ROWS = b'{"program":'
"""The beginning of each line of a database's session; the last line changes with each message."""

FILES: dict[FormatName, tuple[tuple[str, ...], Callable[[str], bytes]]] = {
    name: _files_of(name) for name in FORMATS
}
"""The fixtures of each format: their names, and the function that reads one."""


def every_file() -> list[bytes]:
    """Return all fixtures of all programs."""
    return [read(name) for names, read in FILES.values() for name in names]


def empty_store() -> MemoryStore:
    """A store in memory."""
    return MemoryStore(clock=ManualClock(), random=SeededRandom(1))


async def imported(
    store: SessionStore,
    source: bytes | Path,
    format: FormatName = "auto",
    bounds: Bounds = BOUNDS,
) -> ImportReport:
    """Import `source` into `store`; return the report."""
    return await import_source(
        store,
        source,
        clock=ManualClock(),
        random=SeededRandom(2),
        format=format,
        bounds=bounds,
    )


def path_of(parsed: ParsedSource, leaf: int | None = None) -> list[Item]:
    """Return the items from the root to `leaf`, by default to the leaf of the source."""
    position = parsed.leaf if leaf is None else leaf
    path: list[Item] = []
    while position is not None:
        path.append(parsed.items[position])
        position = parsed.items[position].parent
    return path[::-1]


def texts_on(path: list[Item]) -> list[str]:
    """Return the texts of the messages on a path."""
    return [item.body.text for item in path if isinstance(item.body, Message)]


def made_of(parsed: ParsedSource, number: int) -> Item:
    """Return the first item that was parsed from line `number`."""
    return next(item for item in parsed.items if item.number == number)


def unaccounted_lines(parsed: ParsedSource) -> list[int]:
    """Return the numbers of the lines that are neither used nor reported."""
    known = {item.number for item in parsed.items}
    known.update(line.number for line in parsed.malformed)
    known.update(parsed.header_lines, parsed.blank_lines)
    return [number for number in range(1, parsed.lines + 1) if number not in known]


def check_items(parsed: ParsedSource) -> None:
    """Check the rules for every source, even damaged: no line is lost, references go backward."""
    assert unaccounted_lines(parsed) == []
    for position, item in enumerate(parsed.items):
        named = [item.parent, item.about, *(item.references or {}).values()]
        assert all(other is None or 0 <= other < position for other in named)
        assert item.parent is None or parsed.items[item.parent].lane == "tree"
    assert parsed.leaf is None or parsed.items[parsed.leaf].lane == "tree"
    ids = [entry_id(StreamId("s"), number) for number in range(len(parsed.items))]
    assert all(isinstance(body_without_source(item, ids), bytes) for item in parsed.items)


@st.composite
def spoilt(draw: st.DrawFn, files: Sequence[bytes]) -> bytes:
    """Draw one of `files` with lines cut, damaged, repeated, swapped, removed or inserted."""
    lines = draw(st.sampled_from(files)).split(b"\n")
    for _ in range(draw(st.integers(1, 5))):
        at, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        match draw(st.sampled_from(["cut", "spoil", "repeat", "swap", "drop", "insert"])):
            case "cut":
                lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
            case "spoil":
                byte = draw(st.integers(0, max(0, len(lines[at]) - 1)))
                lines[at] = lines[at][:byte] + draw(st.binary(max_size=3)) + lines[at][byte + 1 :]
            case "repeat":
                lines.insert(other, lines[at])
            case "swap":
                lines[at], lines[other] = lines[other], lines[at]
            case "insert":
                lines.insert(at, draw(st.binary(max_size=20)))
            case _:
                lines[at] = b""
    return b"\n".join(lines)
