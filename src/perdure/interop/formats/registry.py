"""The formats of session files that can be imported, besides perdure's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from perdure.codecs.fields import Fields
from perdure.codecs.operator import words as operator_words
from perdure.codecs.pi import words as pi_words
from perdure.interop.formats import aider, messages
from perdure.interop.formats.claude_code import reader as claude_code
from perdure.interop.formats.codex import reader as codex
from perdure.interop.formats.databases import cursor, goose, zed
from perdure.interop.formats.databases.row_lines import DatabaseFormat
from perdure.interop.formats.items import SourceHeader
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

    A program may store several sessions in one file: `database` describes how a database stores
    them, and `cut` returns the sessions of another file. `file_names` are patterns of file names
    that do not end with ``.jsonl``. `gather` returns the session of a file that matches
    `file_names`, or of the folder of that file. `at_path` adds to the header the facts that only
    the path of the file contains.
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


FORMATS: Mapping[Format, SourceFormat] = {
    pi_words.FORMAT: SourceFormat("pi", pi.parse, pi.Reader, pi.is_record),
    qwen_code.FORMAT: SourceFormat(
        "Qwen Code", qwen_code.parse, qwen_code.Reader, qwen_code.is_record
    ),
    claude_code.FORMAT: SourceFormat(
        "Claude Code",
        claude_code.parse,
        claude_code.Reader,
        claude_code.is_record,
        at_path=claude_code.at_path,
    ),
    codex.FORMAT: SourceFormat(
        "Codex", codex.parse, codex.Reader, codex.is_record, at_path=codex.at_path
    ),
    gemini_cli.FORMAT: SourceFormat(
        "Gemini CLI", gemini_cli.parse, gemini_cli.Reader, gemini_cli.is_record
    ),
    copilot_cli.FORMAT: SourceFormat(
        "Copilot CLI",
        copilot_cli.parse,
        copilot_cli.Reader,
        copilot_cli.is_record,
        at_path=copilot_cli.at_path,
    ),
    kimi_cli.FORMAT: SourceFormat(
        "Kimi CLI",
        kimi_cli.parse,
        kimi_cli.Reader,
        kimi_cli.is_record,
        at_path=kimi_cli.at_path,
    ),
    operator_words.FORMAT: SourceFormat(
        "Operator", operator.parse, operator.Reader, operator.is_record
    ),
    openhands.FORMAT: SourceFormat(
        "OpenHands",
        openhands.parse,
        openhands.Reader,
        openhands.is_record,
        gather=openhands.gather,
        file_names=(openhands.FILE_NAME,),
    ),
    amp.FORMAT: SourceFormat(
        "Amp",
        amp.parse,
        amp.Reader,
        amp.is_record,
        gather=amp.gather,
        file_names=(amp.FILE_NAME,),
    ),
    goose.FORMAT: SourceFormat(
        "Goose",
        goose.parse,
        goose.Reader,
        goose.is_record,
        database=goose.DATABASE,
        at_path=goose.at_path,
    ),
    cursor.FORMAT: SourceFormat(
        "Cursor", cursor.parse, cursor.Reader, cursor.is_record, database=cursor.DATABASE
    ),
    zed.FORMAT: SourceFormat("Zed", zed.parse, zed.Reader, zed.is_record, database=zed.DATABASE),
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
        at_path=messages.at_path,
    ),
}
"""Maps names to formats. If several formats accept a line, the first of them wins."""
