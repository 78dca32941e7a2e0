"""Access the bytes of a source, in memory or in a file that is read piece by piece.

Invariant: only one chunk of a file and the current line are in memory, whatever the size of the
file. This module does not interpret the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from perdure.bounds.files import open_named
from perdure.bounds.limits import limits
from perdure.codecs.lines import Line
from perdure.errors import FormatError, LimitExceeded
from perdure.session.ids import blob_hash_of

CHUNK_BYTES = 256 * 1024
"""Number of bytes that are read from a file at a time. Longer lines are read in larger pieces."""


class Content(Protocol):
    """The bytes that a source had when it was opened."""

    @property
    def name(self) -> str:
        """The name of the source in errors."""
        ...

    @property
    def length(self) -> int:
        """The number of bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset` on; fewer only at the end.

        Raises: FormatError if the bytes cannot be read or no longer exist.
        """
        ...


class Held(msgspec.Struct, frozen=True):
    """A source whose bytes are in memory."""

    content: bytes
    name: str = "source"

    @property
    def length(self) -> int:
        """The number of bytes."""
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset` on; fewer only at the end."""
        return self.content[offset : offset + length]


class FileContent:
    """The bytes of a file when it was opened; later additions are ignored.

    Call `close` after use. Only one thread is allowed to read at a time.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.name = name or path.name
        self.path = path
        try:
            self._file: BinaryIO = open_named(path)
            self._length = self._file.seek(0, 2)
        except OSError as error:
            raise FormatError(str(path), f"it cannot be read ({error.strerror})") from error

    @property
    def length(self) -> int:
        """The number of bytes when the file was opened, or after `cut`."""
        return self._length

    def cut(self, length: int) -> None:
        """Limit the content to the first `length` bytes."""
        self._length = min(self._length, length)

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset` on; fewer only at the end.

        Raises: FormatError if the bytes cannot be read, or the file became shorter.
        """
        wanted = max(0, min(length, self._length - offset))
        try:
            self._file.seek(offset)
            found = self._file.read(wanted)
            while len(found) < wanted and (more := self._file.read(wanted - len(found))):
                found += more
        except OSError as error:
            raise FormatError(str(self.path), f"it cannot be read ({error.strerror})") from error
        if len(found) < wanted:
            raise FormatError(str(self.path), "it became shorter while it was read")
        return found

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> FileContent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Section(msgspec.Struct, frozen=True):
    """The bytes of `content` from `begin` to `end`, as a separate source."""

    content: Content
    begin: int
    end: int
    name: str

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.end - self.begin

    def read(self, offset: int, length: int) -> bytes:
        """Return the `length` bytes from `offset` on; fewer only at the end."""
        wanted = max(0, min(length, self.length - offset))
        return self.content.read(self.begin + offset, wanted)


def path_of(content: Content) -> Path | None:
    """Return the file that contains `content`; None if no file contains it."""
    if isinstance(content, Section):
        return path_of(content.content)
    return content.path if isinstance(content, FileContent) else None


def pieces_of(content: Content, begin: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `begin` to `end`, in chunks."""
    for offset in range(begin, end, CHUNK_BYTES):
        yield content.read(offset, min(CHUNK_BYTES, end - offset))


def digest_of(content: Content, begin: int, end: int) -> str:
    """Return the ``blob_hash`` of the bytes from `begin` to `end`."""
    return blob_hash_of(pieces_of(content, begin, end))


def line_number_at(content: Content, offset: int) -> int:
    """Return the number of the line with the byte at `offset`."""
    return sum(piece.count(b"\n") for piece in pieces_of(content, 0, offset)) + 1


def end_of_lines(content: Content) -> int:
    """Return the offset after the last line that ends with LF; 0 if there is no such line."""
    end = content.length
    while end > 0:
        begin = max(0, end - CHUNK_BYTES)
        found = content.read(begin, end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def batches_in(content: Content) -> Iterator[tuple[list[bytes], bool]]:
    """Yield batches of lines without their LF, and whether an LF ended these lines.

    Shape: a last line without an LF is a batch of its own.
    """
    at, rest, most = 0, b"", limits().import_line_bytes
    while at < content.length:
        # Read increasing amounts of a long line, so that it is not joined repeatedly.
        chunk = content.read(at, max(CHUNK_BYTES, len(rest)))
        at += len(chunk)
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > most:
            raise LimitExceeded(f"a line of {content.name}", "import_line_bytes", most)
        yield lines, True
    if rest:
        yield [rest], False


def lines_in(content: Content) -> Iterator[Line]:
    """Yield the lines of `content`, each with its number and offset."""
    number = offset = 0
    for lines, is_ended in batches_in(content):
        for line in lines:
            number += 1
            yield Line(number, offset, line, is_ended)
            offset += len(line) + 1


def first_line(content: Content) -> bytes:
    """Return the first line that is not blank; empty bytes if every line is blank."""
    return next((line.content for line in lines_in(content) if not line.is_blank), b"")
