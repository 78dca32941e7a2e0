from __future__ import annotations

import gzip

import pytest

from perdure.interop.exports import export_session
from perdure.interop.formats.detection import LINES_LOOKED_AT, detect_format, packed_as
from perdure.interop.formats.sources.content import Held
from perdure.interop.reports import FormatName
from tests.fakes.sources import (
    FILES,
    PI,
    claude_file,
    codex_file,
    empty_store,
    imported,
    operator_file,
    pi_file,
)


def recognised_in(content: bytes) -> str | None:
    return detect_format(Held(content))


@pytest.mark.parametrize("format", FILES)
def test_every_file_of_a_format_is_recognised(format: FormatName) -> None:
    names, read = FILES[format]
    assert {recognised_in(read(name)) for name in names} == {format}


@pytest.mark.parametrize("name", ["current.jsonl", "sample.jsonl", "legacy.jsonl"])
def test_operator_file_without_header_is_recognized_as_operator(name: str) -> None:
    assert recognised_in(operator_file(name).partition(b"\n")[2]) == "operator"


@pytest.mark.parametrize("name", ["rollout.jsonl", "bare.jsonl"])
def test_codex_file_without_header_is_recognized_as_codex(name: str) -> None:
    assert recognised_in(codex_file(name).partition(b"\n")[2]) == "codex"


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"queue-operation","operation":"enqueue","sessionId":"s","content":"x"}',
        b'{"type":"file-history-snapshot","messageId":"m","snapshot":{"trackedFileBackups":{}}}',
        b'{"type":"custom-title","customTitle":"x","sessionId":"s"}',
        b'{"type":"summary","summary":"x","leafUuid":"l"}',
    ],
)
def test_claude_code_file_without_messages_is_detected(line: bytes) -> None:
    assert recognised_in(line + b"\n") == "claude-code"


async def test_format_of_an_exported_file_is_detected() -> None:
    store = empty_store()
    report = await imported(store, claude_file("tools.jsonl"))
    assert recognised_in((await export_session(store, report.session)).content) == "perdure"
    assert recognised_in((await export_session(store, report.session, "pi")).content) == "pi"


def test_noise_before_first_record_is_skipped() -> None:
    assert recognised_in(b"garbage\n\n[1]\n" + pi_file("v3.jsonl")) == "pi"
    assert recognised_in(b"\xff{\n" * 5 + claude_file("chain.jsonl")) == "claude-code"


def test_pi_file_without_header_is_recognized_as_pi() -> None:
    assert recognised_in(pi_file("v3.jsonl").partition(b"\n")[2]) == "pi"
    assert recognised_in(pi_file("v1.jsonl").partition(b"\n")[2]) == "pi"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\nworld\n",
        b'{"type":"session","version":3,"timestamp":1750000000.25,"cwd":"/"}\n',
        b'{"id":"a1","timestamp":"2026-01-01T00:00:00Z","parent_id":"a0","type":"news"}\n',
        b'{"type":"metadata","title":"a page"}\n{"role":"x"}\n',
        b'{"type":"message","timestamp":"2026-01-01T00:00:00Z","payload":{}}\n',
        b'{"type":"session_meta","timestamp":"2026-01-01T00:00:00Z"}\n',
        b'{"id":"x","timestamp":"2026-01-01T00:00:00Z"}\n',
        b'{"type":"message","role":"assistant","content":[{"type":"text","text":"x"}]}\n',
        b'{"type":"message","id":"x","parent_id":null,"text":"x"}\n',
        b'{"type":42}\n{"kind":"user"}\n',
    ],
)
def test_file_that_is_no_session_has_no_detected_format(content: bytes) -> None:
    assert recognised_in(content) is None


def test_format_detection_reads_only_the_start_of_a_file() -> None:
    assert recognised_in(b"x\n" * LINES_LOOKED_AT + pi_file("v3.jsonl")) is None


def test_compressed_or_utf_16_file_is_reported_with_a_remedy() -> None:
    assert "unpack" in (packed_as(Held(gzip.compress(pi_file(PI[0])))) or "")
    assert "UTF-8" in (packed_as(Held("{}".encode("utf-16"))) or "")
    assert packed_as(Held(b"")) is None
