"""Write and edit files inside the jail, atomically.

A file is written under a temporary name and then renamed, so no reader sees a half-written file. If
another program meanwhile puts a link in the place of the file, the rename replaces the link and
does not follow it.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from perdure.errors import ApprovalStale, InvalidArguments, ToolDenied, ToolError
from perdure.tools.approval import Bound, content_fact
from perdure.tools.bound_facts import file_fact, folder_fact, shown_facts, times_fact
from perdure.tools.builtin.files import MAX_FILE_BYTES, text_in
from perdure.tools.builtin.proposal import proposing
from perdure.tools.decorator import tool
from perdure.tools.diff import diff_of
from perdure.tools.paths.floors import is_protected
from perdure.tools.paths.jail import LINKED, Jail, Place, open_regular, refuse_special
from perdure.tools.permissions import Permissions
from perdure.tools.spec import Subject, ToolCall

NEW_FOLDER = "does not exist yet"
UNREADABLE = "not readable"

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPENDING = os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def about_edit(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """Show the path of an edit to the person who approves it.

    The answer "always" is not offered.
    """
    return msgspec.structs.replace(about_path(args, permissions), grant=None)


def about_path(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """Show the path of a call to the person who approves it; reject protected names."""
    path = str(args["path"])
    names = [name for name in path.replace("\\", "/").split("/") if name not in ("", ".")]
    if is_protected(names, is_absolute=permissions.scope == "full" and path.startswith("/")):
        raise ToolDenied("files", "the path is protected and is not written")
    if not names:
        raise InvalidArguments("files", "path: it names no file")
    whole = ("/" if path.startswith("/") else "") + "/".join(names)
    return Subject(whole, whole)


def bind_write(call: ToolCall) -> Bound:
    """Return the facts that an approval of a write covers: file, folder, old and new content."""
    args, tool_name = call.args, call.tool
    data = _encoded(tool_name, str(args["content"]))
    is_appending, makes_parents = args.get("append") is True, args.get("create_dirs") is True
    place_of = Jail.of(call).plan_place(str(args["path"]), makes_parents=makes_parents)
    with place_of as place, _failures(call):
        found = _read_current(place)
        facts = {**found.facts, "content": content_fact(data)}
        after = found.content + data if is_appending else data
        verb = "appended to" if is_appending else "written to"
        always = f": {content_fact(data)}, {verb} {place.path}"
        diff = _diff(found.content, after)
        return Bound(facts, always, diff, is_hidden=place.is_hidden)


def bind_edit(call: ToolCall) -> Bound:
    """Return the facts that an approval of an edit covers: file, folder, old and new content."""
    args, tool_name = call.args, call.tool
    with Jail.of(call).plan_place(str(args["path"])) as place, _failures(call):
        found = _read_current(place)
        old, new = str(args["old_text"]), str(args["new_text"])
        data, _ = _edited(tool_name, found, old, new, is_all=args.get("replace_all") is True)
        facts = {**found.facts, "after": content_fact(data)}
        diff = _diff(found.content, data)
        return Bound(facts, None, diff, is_hidden=place.is_hidden)


@proposing("fs_write", about_path, bind=bind_write)
@tool(effect="write")
def write_file(
    path: Annotated[str, "The file, relative to the working directory.", Meta(min_length=1)],
    content: Annotated[str, "The whole text to write."],
    *,
    append: Annotated[bool, "Whether to add it at the end instead of replacing all."] = False,
    create_dirs: Annotated[bool, "Whether to make missing directories above it."] = False,
    call: ToolCall,
) -> str:
    """Write a text file in the working directory; an existing file is replaced as a whole.

    Write temporary files below ~scratch/; the other file tools can read them there.
    """
    data = _encoded(call.tool, content)
    with Jail.of(call).place(path, makes_parents=create_dirs) as place, _failures(call):
        before = _before(place)
        if call.approved is not None:
            _require_approved(call, _read_current(place))
        if append and before is not None:
            _append(call, place, data)
        else:
            replace(place, data, before)
    return f"{len(data)} bytes {'appended' if append and before is not None else 'written'}"


@proposing("fs_write", about_edit, bind=bind_edit)
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
    with Jail.of(call).place(path) as place, _failures(call):
        before = _before(place)
        found = _read_current(place)
        _require_approved(call, found)
        data, count = _edited(call.tool, found, old_text, new_text, is_all=replace_all)
        replace(place, data, before)
    return f"replaced {count} time{'s' if count > 1 else ''}"


def _edited(
    tool_name: str, found: _Found, old_text: str, new_text: str, *, is_all: bool
) -> tuple[bytes, int]:
    """Return the edited content of the file `found`, and the number of replacements.

    Raises: ToolError if the edit is not possible.
    """
    if not found.is_there:
        raise ToolError(tool_name, "no such file; write_file creates it")
    try:
        text = text_in(found.content)
    except ValueError as error:
        raise ToolError(tool_name, f"the file cannot be read: {error}") from None
    count = text.count(old_text)
    if not count:
        raise ToolError(tool_name, "old_text is not in the file; read it again")
    if count > 1 and not is_all:
        raise ToolError(tool_name, f"old_text is there {count} times; give more around it")
    return _encoded(tool_name, text.replace(old_text, new_text)), count


class _Found(NamedTuple):
    """The state of a file now: its facts, and its content unless the file is very large."""

    facts: dict[str, str]
    content: bytes
    is_there: bool


def _read_current(place: Place) -> _Found:
    """Read the current file at `place`, through open descriptors.

    Raises: OSError if the file cannot be read.
    """
    folder = NEW_FOLDER
    if not place.is_new_folder:
        folder = folder_fact(place.path.rpartition("/")[0], place.parent)
    facts = {"file": place.path, "folder": folder, "before": "nothing is there"}
    status = _before(place)
    if status is None:
        return _Found(facts, b"", is_there=False)
    try:
        descriptor = open_regular(place.parent, place.name, may_be_linked=not place.has_walls)
    except PermissionError:
        return _Found(
            {**facts, "before": f"{UNREADABLE}, {times_fact(status)}"}, b"", is_there=True
        )
    try:
        before, content = file_fact(descriptor)
    finally:
        os.close(descriptor)
    too_large = bytes(MAX_FILE_BYTES + 1) if content is None else content
    return _Found({**facts, "before": before}, too_large, is_there=True)


def _require_approved(call: ToolCall, found: _Found) -> None:
    """Check that a person approved exactly this file, folder and content.

    Raises: ApprovalStale if a person approved something else.
    """
    approved = call.approved
    if approved is None:
        return
    facts = shown_facts(found.facts)
    names = ("file", "before") if approved.get("folder") == NEW_FOLDER else facts
    if any(approved.get(name) != facts[name] for name in names):
        raise ApprovalStale(call.tool)


def _diff(before: bytes, after: bytes) -> str | None:
    try:
        return diff_of(text_in(before), text_in(after))
    except ValueError:
        return None


def replace(place: Place, data: bytes, before: os.stat_result | None) -> None:
    """Write `data` to `place`.

    `before` is the status of the file that is there, or None if there is no file.
    Durable: the write is atomic, and on the disk when this call returns.
    Raises: OSError if writing fails, or if the file at `place` has changed since it was read.
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
            raise OSError(errno.EBUSY, "another program changed it meanwhile")
        os.replace(spare, place.name, src_dir_fd=place.parent, dst_dir_fd=place.parent)
    except BaseException:
        os.unlink(spare, dir_fd=place.parent)
        raise
    os.fsync(place.parent)


def _before(place: Place) -> os.stat_result | None:
    """Return the current status of the file at `place`; None if there is no file.

    Raises: OSError if the path is not a regular file, or has a second hard link that is not
    permitted.
    """
    try:
        found = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    refuse_special(found, may_be_linked=not place.has_walls)
    return found


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    if status is None:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)


def _append(call: ToolCall, place: Place, data: bytes) -> None:
    """Append `data` to the approved file at `place`, through the descriptor that was checked.

    Raises: ApprovalStale if the file is no longer the approved one. Raises OSError if writing
    fails.
    """
    before = None if call.approved is None else call.approved["before"]
    is_compared = before is not None and not before.startswith(UNREADABLE)
    flags = _APPENDING | (os.O_RDWR if is_compared else os.O_WRONLY)
    descriptor = open_regular(
        place.parent, place.name, may_be_linked=not place.has_walls, flags=flags
    )
    with os.fdopen(descriptor, "ab") as file:
        if is_compared and file_fact(descriptor)[0] != before:
            raise ApprovalStale(call.tool)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _encoded(tool_name: str, text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(tool_name, "the text holds lone surrogates") from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidArguments(tool_name, f"the text is larger than {MAX_FILE_BYTES} bytes")
    return data


@contextmanager
def _failures(call: ToolCall) -> Generator[None]:
    """Convert an OSError of the block to the error that the model gets."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EBUSY and call.approved is not None:
            raise ApprovalStale(call.tool) from None
        kind = ToolDenied if error.strerror == LINKED else ToolError
        raise kind(call.tool, f"the file cannot be written: {error.strerror}") from None
