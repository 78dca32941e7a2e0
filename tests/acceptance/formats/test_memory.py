"""The memory for an import depends only on the longest line and the number of lines of a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

CHILD = Path(__file__).parent / "importing_child.py"
BYTES_A_LINE = 1_000
"""Memory that an import may use per line: for ids and positions, and lost by the allocator."""
SLACK_BYTES = 12_000_000

AT = "2026-04-01T10:00:00.500Z"


def pi_lines(session: str, count: int, text: str) -> Iterator[object]:
    yield {"type": "session", "version": 3, "id": session, "timestamp": AT, "cwd": "/a"}
    for n in range(count):
        role = "assistant" if n % 2 else "user"
        message = {"role": role, "content": [{"type": "text", "text": f"{n} {text}"}]}
        parent = f"{n - 1:08x}" if n else None
        yield {
            "type": "message",
            "id": f"{n:08x}",
            "parentId": parent,
            "timestamp": AT,
            "message": message,
        }


def claude_lines(session: str, count: int, text: str) -> Iterator[object]:
    for n in range(count):
        role = "assistant" if n % 2 else "user"
        yield {
            "parentUuid": f"u{n - 1:08x}" if n else None,
            "uuid": f"u{n:08x}",
            "sessionId": session,
            "type": role,
            "message": {"role": role, "content": [{"type": "text", "text": f"{n} {text}"}]},
            "timestamp": AT,
        }


def codex_lines(session: str, count: int, text: str) -> Iterator[object]:
    meta = {"id": session, "timestamp": AT, "cwd": "/a"}
    yield {"timestamp": AT, "type": "session_meta", "payload": meta}
    for n in range(count):
        kind = "output_text" if n % 2 else "input_text"
        role = "assistant" if n % 2 else "user"
        content = [{"type": kind, "text": f"{n} {text}"}]
        item = {"type": "message", "role": role, "content": content}
        yield {"timestamp": AT, "type": "response_item", "payload": item}


def operator_lines(session: str, count: int, text: str) -> Iterator[object]:
    yield {"type": "session", "version": 3, "id": session, "timestamp": 1.5, "cwd": "/a"}
    for n in range(count):
        message = {
            "role": "assistant" if n % 2 else "user",
            "contents": [{"type": "text", "content": f"{n} {text}"}],
        }
        parent = f"{n - 1:08x}" if n else None
        line = {"type": "message", "id": f"{n:08x}", "parent_id": parent, "timestamp": 1.5}
        yield {**line, "message": message}


def own_lines(session: str, count: int, text: str) -> Iterator[object]:
    header = {"id": session, "created_at": 1_700_000_000_000}
    yield {"type": "perdure", "version": 1, "stream": header}
    for n in range(count):
        parts = [{"type": "text", "text": f"{n} {text}"}]
        line = {
            "seq": n,
            "id": f"{session}/{n}",
            "lane": "tree",
            "at": n,
            "kind": "message",
            "v": 1,
        }
        parent = {"parent_id": f"{session}/{n - 1}"} if n else {}
        yield {**line, **parent, "body": {"role": "user", "parts": parts}}
    yield {"type": "aliases", "aliases": {f"{n:08x}": f"{session}/{n}" for n in range(count)}}
    yield {"type": "end", "entries": count, "blobs": 0}


FORMATS = {
    "pi": pi_lines,
    "claude-code": claude_lines,
    "codex": codex_lines,
    "operator": operator_lines,
    "perdure": own_lines,
}


def peak_of(folder: Path, file: Path) -> tuple[int, int]:
    """Entries imported from `file`, and the peak memory of the import in its own process."""
    address = f"sqlite:///{folder / 'store.db'}"
    command = [sys.executable, str(CHILD), address, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    entries, peak = done.stdout.split()
    return int(entries), int(peak)


def written(path: Path, lines: Iterator[object]) -> Path:
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
    return path


@pytest.mark.all_only
@pytest.mark.timeout(300)
@pytest.mark.parametrize("format", list(FORMATS))
def test_import_memory_does_not_grow_with_the_file_size(format: str, tmp_path: Path) -> None:
    lines, text = FORMATS[format], "lorem ipsum " * 500
    peaks: list[int] = []
    sizes: list[int] = []
    for count in (1_300, 10_400):
        file = written(tmp_path / f"{count}.jsonl", lines(f"s{count}", count, text))
        entries, peak = peak_of(tmp_path, file)
        assert entries == count
        peaks.append(peak)
        sizes.append(file.stat().st_size)
    assert sizes[1] - sizes[0] > 50_000_000
    assert peaks[1] - peaks[0] < (10_400 - 1_300) * BYTES_A_LINE + SLACK_BYTES


@pytest.mark.all_only
@pytest.mark.timeout(300)
def test_file_that_grew_by_a_line_is_not_loaded_into_memory(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", pi_lines("s", 8_000, "lorem ipsum " * 500))
    peak_of(tmp_path, file)
    with file.open("ab") as grown:
        grown.write(b'{"type":"message","id":"new","parentId":"00000003","message":')
        grown.write(b'{"role":"user","content":"more"}}\n')
    small = tmp_path / "small"
    small.mkdir()
    _, least = peak_of(small, written(small / "b.jsonl", pi_lines("t", 1, "x")))
    entries, peak = peak_of(tmp_path, file)
    assert entries == 1
    assert peak - least < 8_000 * BYTES_A_LINE + 2 * SLACK_BYTES


@pytest.mark.all_only
@pytest.mark.timeout(300)
def test_memory_stays_bounded_if_records_come_before_their_parents(tmp_path: Path) -> None:
    peaks: list[int] = []
    for count in (1_300, 8_000):
        header, *records = pi_lines(f"s{count}", count, "lorem ipsum " * 500)
        file = written(tmp_path / f"{count}.jsonl", iter([header, *reversed(records)]))
        entries, peak = peak_of(tmp_path, file)
        assert entries >= count
        peaks.append(peak)
    assert peaks[1] - peaks[0] < (8_000 - 1_300) * BYTES_A_LINE + SLACK_BYTES
