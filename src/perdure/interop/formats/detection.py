"""Detect the format of a file from its content, never from its name."""

from __future__ import annotations

from perdure.codecs.fields import Fields, fields_of, name_in
from perdure.codecs.lines import read_line
from perdure.interop.formats import messages, native
from perdure.interop.formats.registry import FORMATS
from perdure.interop.formats.sources.content import Content, lines_in
from perdure.interop.reports import Format

LINES_LOOKED_AT = 200
"""Number of lines that are searched for a record of a known format."""

_BEGINNING_BYTES = 65_536


def detect_format(content: Content) -> Format | None:
    """Return the format of the session in `content`; None if no line identifies a format.

    In the files of several programs, messages without an envelope are mixed with the program's own
    records. In a file with both, the program's own records determine the format.
    """
    start = content.read(0, _BEGINNING_BYTES)
    for name, format in FORMATS.items():
        if format.is_beginning is not None and format.is_beginning(start):
            return name
    has_messages = False
    for line in lines_in(content):
        if line.number > LINES_LOOKED_AT:
            break
        fields = fields_of(read_line(line.content).value)
        found = None if fields is None else _format_of(fields)
        if found is not None:
            return found
        has_messages = has_messages or (fields is not None and messages.is_record(fields))
    return messages.FORMAT if has_messages else None


def has_line_of(content: Content, format: Format) -> bool:
    """Return whether at least one line of `content` is a record of `format`."""
    is_beginning = FORMATS[format].is_beginning
    if is_beginning is not None:
        return is_beginning(content.read(0, _BEGINNING_BYTES))
    records = (fields_of(read_line(line.content).value) for line in lines_in(content))
    return any(fields is not None and _format_of(fields) == format for fields in records)


_PACKED = (
    (
        (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"),
        "it is compressed; unpack it",
    ),
    ((b"\xff\xfe", b"\xfe\xff"), "it is UTF-16, and sessions are UTF-8; convert it"),
)
"""First bytes of packed files that may contain a session, and a text on how to unpack them."""


def packed_as(content: Content) -> str | None:
    """If `content` is a known kind of packed file, return how to unpack it; else return None."""
    start = content.read(0, 8)
    return next((advice for starts, advice in _PACKED if start.startswith(starts)), None)


def _format_of(fields: Fields) -> Format | None:
    if name_in(fields, "type") == native.FORMAT:
        return native.FORMAT
    for name, format in FORMATS.items():
        if format.is_record is not None and format.is_record(fields):
            return name
    return None
