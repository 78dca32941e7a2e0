"""The formats of session files that can be imported, besides perdure's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from perdure.codecs.fields import Fields
from perdure.codecs.operator import words as operator_words
from perdure.codecs.pi import words as pi_words
from perdure.interop.formats import aider, messages
from perdure.interop.formats.claude_code import reader as claude_code
from perdure.interop.formats.codex import reader as codex
from perdure.interop.formats.databases import cursor, goose, zed
from perdure.interop.formats.databases.row_lines import DatabaseFormat
from perdure.interop.formats.items import SourceHeader, named_by_path
from perdure.interop.formats.json_lines import (
    amp,
    copilot_cli,
    gemini_cli,
    kimi_cli,
    openhands,
    qwen_code,
)
from perdure.interop.formats.opencode import reader as opencode
from perdure.interop.formats.operator import reader as operator
from perdure.interop.formats.pi import reader as pi
from perdure.interop.formats.sources.content import Content
from perdure.interop.formats.sources.reader import Make, Parse
from perdure.interop.reports import Format


class SourceFormat(msgspec.Struct, frozen=True):
    """Describes how perdure recognizes and reads the files of one program.

    `parse` reads a whole file; `reader` reads a file line by line. A file has the format if
    `is_beginning` accepts its first bytes or `is_record` accepts one of its lines.

    For a program that stores several sessions in one file, `database` describes how a database
    stores the sessions, and `cut` splits a file that is not a database. `file_names` are patterns
    of file names that do not end with ``.jsonl``. `gather` returns the session of a file that
    matches `file_names`, or of the folder of that file. `at_path` adds to the header the facts that
    only the path of the file contains.
    """

    title: str
    parse: Parse
    reader: Make | None = None
    is_record: Callable[[Fields], bool] | None = None
    is_beginning: Callable[[bytes], bool] | None = None
    database: DatabaseFormat | None = None
    cut: Callable[[Content], Iterator[Content]] | None = None
    gather: Callable[[Path], Content] | None = None
    file_names: Sequence[str] = ()
    at_path: Callable[[SourceHeader, Path], SourceHeader] | None = None


class _LineFormat(Protocol):
    """The module of a format that is read line by line."""

    @property
    def parse(self) -> Parse: ...

    @property
    def Reader(self) -> Make: ...  # noqa: N802 - a class of the module

    @property
    def is_record(self) -> Callable[[Fields], bool]: ...


def _by_line(title: str, module: _LineFormat, **more: Any) -> SourceFormat:
    """Return the format of `module`; `more` are further fields of `SourceFormat`."""
    return SourceFormat(title, module.parse, module.Reader, module.is_record, **more)


FORMATS: Mapping[Format, SourceFormat] = {
    pi_words.FORMAT: _by_line("pi", pi),
    qwen_code.FORMAT: _by_line("Qwen Code", qwen_code),
    claude_code.FORMAT: _by_line("Claude Code", claude_code, at_path=claude_code.at_path),
    codex.FORMAT: _by_line("Codex", codex, at_path=codex.at_path),
    gemini_cli.FORMAT: _by_line("Gemini CLI", gemini_cli),
    copilot_cli.FORMAT: _by_line("Copilot CLI", copilot_cli, at_path=copilot_cli.at_path),
    kimi_cli.FORMAT: _by_line("Kimi CLI", kimi_cli, at_path=kimi_cli.at_path),
    operator_words.FORMAT: _by_line("Operator", operator),
    openhands.FORMAT: _by_line(
        "OpenHands", openhands, gather=openhands.gather, file_names=(openhands.FILE_NAME,)
    ),
    amp.FORMAT: _by_line("Amp", amp, gather=amp.gather, file_names=(amp.FILE_NAME,)),
    goose.FORMAT: _by_line("Goose", goose, database=goose.DATABASE, at_path=goose.at_path),
    cursor.FORMAT: _by_line("Cursor", cursor, database=cursor.DATABASE),
    zed.FORMAT: _by_line("Zed", zed, database=zed.DATABASE),
    aider.FORMAT: SourceFormat(
        "Aider",
        aider.parse,
        is_beginning=aider.is_beginning,
        cut=aider.sessions_in,
        file_names=(aider.FILE_NAME,),
        at_path=aider.at_path,
    ),
    opencode.FORMAT: SourceFormat("opencode", opencode.parse, is_beginning=opencode.is_beginning),
    messages.FORMAT: SourceFormat(
        "bare messages",
        messages.parse,
        is_beginning=messages.is_beginning,
        at_path=named_by_path,
    ),
}
"""Maps names to formats. If several formats accept a line, the first of them wins."""
