"""Writing and editing files inside the jail: whole, or not at all.

A file is written beside its place and then put there, so that nobody ever sees half of it, and a
link that was swapped in is replaced and not followed.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from perdure.errors import InvalidArguments, ToolDenied, ToolError
from perdure.tools.builtin.files import MAX_FILE_BYTES, text_of
from perdure.tools.builtin.proposing import proposing
from perdure.tools.declare import tool
from perdure.tools.paths.floors import is_protected
from perdure.tools.paths.jail import LINKED, Jail, Place, open_regular, refuse_special
from perdure.tools.permissions import Permissions
from perdure.tools.spec import Subject, ToolCall

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def about_path(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """The file a call is about, refused already where its name says that it is protected."""
    path = str(args["path"])
    names = [name for name in path.replace("\\", "/").split("/") if name not in ("", ".")]
    if is_protected(names, is_absolute=permissions.scope == "full" and path.startswith("/")):
        raise ToolDenied("files", "the path is protected and is not written")
    if not names:
        raise InvalidArguments("files", "path: it names no file")
    whole = ("/" if path.startswith("/") else "") + "/".join(names)
    return Subject(whole, whole)


@proposing("fs_write", about_path)
@tool(effect="write")
def write_file(
    path: Annotated[str, "The file, relative to the working directory.", Meta(min_length=1)],
    content: Annotated[str, "The whole text to write."],
    *,
    append: Annotated[bool, "Whether to add it at the end instead of replacing all."] = False,
    create_dirs: Annotated[bool, "Whether to make missing directories above it."] = False,
    call: ToolCall,
) -> str:
    """Write a text file in the working directory; an existing one is replaced whole.

    What is no part of the work goes below ~scratch/, where the other file tools find it, too.
    """
    data = _encoded(call.tool, content)
    with Jail.of(call).place(path, makes_parents=create_dirs) as place:
        try:
            before = _before(place)
            if append and before is not None:
                _append(place, data)
            else:
                replace(place, data, before)
        except OSError as error:
            raise _failed(call.tool, error) from None
    return f"{len(data)} bytes {'appended' if append and before is not None else 'written'}"


@proposing("fs_write", about_path)
@tool(effect="write")
def edit_file(
    path: Annotated[str, "The file, relative to the working directory.", Meta(min_length=1)],
    old_text: Annotated[
        str, "The text to replace, exactly as it stands there.", Meta(min_length=1)
    ],
    new_text: Annotated[str, "What stands there afterwards."],
    *,
    replace_all: Annotated[
        bool, "Whether to replace it everywhere; else it must be there once."
    ] = False,
    call: ToolCall,
) -> str:
    """Replace a text in a file of the working directory."""
    with Jail.of(call).place(path) as place:
        try:
            before = _before(place)
            if before is None:
                raise ToolError(call.tool, "there is no such file; write_file makes one")
            text = _read(place)
            found = text.count(old_text)
            if not found:
                raise ToolError(call.tool, "old_text is not in the file; read it again")
            if found > 1 and not replace_all:
                raise ToolError(call.tool, f"old_text is there {found} times; give more around it")
            data = _encoded(call.tool, text.replace(old_text, new_text))
            replace(place, data, before)
        except OSError as error:
            raise _failed(call.tool, error) from None
        except ValueError as error:
            raise ToolError(call.tool, f"the file cannot be read: {error}") from None
    return f"replaced {found} time{'s' if found > 1 else ''}"


def replace(place: Place, data: bytes, before: os.stat_result | None) -> None:
    """Put a file of `data` at `place`, which was `before` (None: nothing) when it was looked at.

    Durable: whole or not at all, and on disk when this returns.
    Raises: OSError, also when the place has changed since.
    """
    spare = f".{secrets.token_hex(8)}.perdure"
    descriptor = os.open(spare, _NEW, 0o666, dir_fd=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if before is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode) & 0o777)
            os.fsync(file.fileno())
        if _identity(_before(place)) != _identity(before):
            raise OSError(errno.EBUSY, "it was changed by somebody else meanwhile")
        os.replace(spare, place.name, src_dir_fd=place.parent, dst_dir_fd=place.parent)
    except BaseException:
        os.unlink(spare, dir_fd=place.parent)
        raise
    os.fsync(place.parent)


def _before(place: Place) -> os.stat_result | None:
    """What is at `place` now; None when nothing is.

    Raises: OSError when it is no regular file, or has another name where it may not.
    """
    try:
        found = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    refuse_special(found, may_be_linked=not place.has_walls)
    return found


def _identity(status: os.stat_result | None) -> tuple[int, int, int] | None:
    return None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)


def _append(place: Place, data: bytes) -> None:
    descriptor = open_regular(
        place.parent, place.name, may_be_linked=not place.has_walls, flags=_APPENDING
    )
    with os.fdopen(descriptor, "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _read(place: Place) -> str:
    descriptor = open_regular(place.parent, place.name, may_be_linked=not place.has_walls)
    try:
        return text_of(descriptor)
    finally:
        os.close(descriptor)


def _encoded(tool_name: str, text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(tool_name, "the text holds lone surrogates") from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidArguments(tool_name, f"the text is larger than {MAX_FILE_BYTES} bytes")
    return data


def _failed(tool_name: str, error: OSError) -> ToolError:
    kind = ToolDenied if error.strerror == LINKED else ToolError
    return kind(tool_name, f"the file cannot be written: {error.strerror}")
