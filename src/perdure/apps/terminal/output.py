"""The output of every command: lines and JSON to stdout, errors and remarks to stderr.

All text passes through `printable`, so text of a model, a tool or a file cannot control the
terminal, even if a command does not call `safe`. JSON does not pass through `printable`, because
its control characters are escaped already. If the reader closes stdout (``| head``), the command
ends quietly with `OutputClosed`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO

import msgspec

from perdure.apps.terminal.advice import message_of
from perdure.apps.terminal.style import CODES, Style, style_for
from perdure.apps.terminal.text import Column, safe, table, whole, wrap
from perdure.errors import PerdureError
from perdure.secrets.mask import mask_secrets, masked_value
from perdure.session.clock import minute, moment_of
from perdure.session.printable import json_escaped
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    import json
    import shutil
else:
    json = Later("json")
    shutil = Later("shutil")

_NAME = "perdure:"
NARROWEST = 40
WIDTH_WITHOUT_TERMINAL = 100

_encoder = msgspec.json.Encoder()
_STYLED = re.compile("(" + "|".join(re.escape(code) for code in CODES) + ")")


class OutputClosed(Exception):
    """The reader of stdout has closed it."""


def prepare_streams() -> None:
    """Make stdout and stderr accept every character, in any locale.

    If a standard stream is closed, reading it returns nothing, and writing to it discards the text.
    """
    _fill_gaps()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fill_gaps() -> None:
    """Open the null device for each closed standard stream, so that no file gets its descriptor."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def width() -> int:
    """Return the width of a line in cells: $COLUMNS, or else the terminal's width, or else 100."""
    return max(shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns, NARROWEST)


def width_for_paths() -> int | None:
    """Return the width of a line in a list of files; None if stdout is no terminal.

    Without a terminal, paths are never cut, because a program might read them.
    """
    return width() if sys.stdout.isatty() else None


def out_style() -> Style:
    """Return the style for stdout."""
    return style_for(sys.stdout)


def printable(text: str) -> str:
    """Return `text` for a terminal; control characters become U+FFFD, except codes of `Style`."""
    if "\x1b" not in text:
        return safe(text)
    pieces = _STYLED.split(text)
    return "".join(piece if n % 2 else safe(piece) for n, piece in enumerate(pieces))


def show(text: str = "", *, end: str = "\n", is_flushed: bool = False) -> None:
    """Write `text` to stdout.

    Raises: OutputClosed.
    """
    try:
        sys.stdout.write(printable(text) + end)
        if is_flushed:
            sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error
    except OSError as error:
        raise _lost(error) from error


def show_lines(lines: Iterable[str]) -> None:
    """Write each of `lines` to stdout.

    Raises: OutputClosed.
    """
    for line in lines:
        show(line)


def plain_table(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """Return `rows`, of which there must be at least one, as a table.

    Each row maps the titles of the columns to its cells; the titles are printed in capitals.
    """
    cells = list(rows)
    columns = [Column(title.upper()) for title in cells[0]]
    return list(table(columns, [list(row.values()) for row in cells], width(), out_style()))


def show_result(data: object, lines: str | Iterable[str], *, as_json: bool) -> None:
    """Write a result to stdout: its `data` as JSON if `as_json`, otherwise its `lines`.

    Raises: OutputClosed.
    """
    if as_json:
        show_json(data)
    else:
        show_lines([lines] if isinstance(lines, str) else lines)


def show_json(value: object, *, is_flushed: bool = False) -> None:
    """Write `value` to stdout as one line of JSON, in UTF-8 in any locale.

    Raises: OutputClosed.
    """
    show_encoded(_encoder.encode(value), is_flushed=is_flushed)


def show_encoded(document: bytes, *, is_flushed: bool = False) -> None:
    """Write a JSON `document` to stdout as one line; DEL, C1 and bidi characters are escaped.

    Raises: OutputClosed.
    """
    is_plain = document.isascii() and b"\x7f" not in document
    line = document if is_plain else json_escaped(document.decode()).encode()
    _write_bytes(line + b"\n", is_flushed=is_flushed)


def show_file(content: bytes) -> None:
    """Write a file's content to stdout; if stdout is a terminal, write it as `printable` text.

    Raises: OutputClosed.
    """
    is_seen = sys.stdout.isatty()
    _write_bytes(safe(content.decode(errors="replace")).encode() if is_seen else content)


def _write_bytes(content: bytes, *, is_flushed: bool = False) -> None:
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        if is_flushed:
            sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error
    except OSError as error:
        raise _lost(error) from error


def _lost(error: OSError) -> OSError:
    """Discard the rest of stdout, and return `error` with a text that names the output."""
    _discard(sys.stdout)
    return OSError(error.errno, lost_output(error))


def lost_output(error: OSError) -> str:
    """Return the message for output that was lost because of `error`."""
    return f"the output could not be written: {error.strerror or error}"


def show_error(error: PerdureError, *, as_json: bool) -> None:
    """Write `error` to stderr, as one sentence or as JSON with its code, message and facts.

    Secrets in the message are masked.
    """
    show_failure(error.code, message_of(error), error.facts(), as_json=as_json)


def show_failure(
    code: str, message: str, facts: dict[str, object] | None = None, *, as_json: bool
) -> None:
    """Write a failure to stderr; its JSON form is ``{"error": {"code", "message", ...facts}}``."""
    if as_json:
        failure = msgspec.to_builtins({**(facts or {}), "code": code, "message": message})
        # msgspec rejects surrogates, which arguments that are not UTF-8 contain.
        text = json.dumps(
            {"error": masked_value(failure)}, ensure_ascii=False, separators=(",", ":")
        )
        remark(json_escaped(whole(text)))
        return
    text = "\n".join(_wrapped(f"{_NAME} {safe(mask_secrets(message))}"))
    remark(f"{style_for(sys.stderr).paint(_NAME, 'bad')}{text.removeprefix(_NAME)}")


def _wrapped(text: str) -> Iterator[str]:
    """Return the lines of `text`; if stderr is a terminal, they are broken between words."""
    try:
        cells = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # not a terminal
        cells = 0
    if not cells:
        yield text
        return
    for line in text.split("\n"):
        yield from wrap(line, max(cells, NARROWEST))


def close_streams() -> OSError | None:
    """Flush stdout and stderr; return the error if some output was lost.

    A closed pipe is not an error. After this call, nothing more can be written to stdout.
    """
    lost: OSError | None = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream)
        except OSError as error:  # a full disk
            lost = lost or (error if stream is sys.stdout else None)
            _discard(stream)
    return lost


def _discard(stream: TextIO) -> None:
    """Discard the buffer of `stream`, so that the interpreter exits without an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def remark(text: str) -> None:
    """Write a line to stderr."""
    try:
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        _discard(sys.stderr)


def local_time(at_ms: int) -> str:
    """Format a local time for people, to the minute. Units: `at_ms` is Unix milliseconds."""
    try:
        return moment_of(at_ms).astimezone().strftime("%Y-%m-%d %H:%M")
    except OverflowError:  # so near the limits of datetime that there is no local time
        return minute(at_ms)


def local_day(at_ms: int) -> str:
    """Format a local day for people. Units: `at_ms` is Unix milliseconds."""
    return local_time(at_ms).partition(" ")[0]


def size(count_bytes: int) -> str:
    """Format a number of bytes for people."""
    amount = float(count_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1000
    raise AssertionError("unreachable")


def count_of(number: int, thing: str, things: str | None = None) -> str:
    """Return ``1 entry`` or ``2 entries``; the plural is `things`, by default with an s."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
