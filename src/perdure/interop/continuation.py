"""Convert a session to a file, with a path and a command to continue it in another program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal, get_args

import msgspec

from perdure.errors import FormatError
from perdure.interop.bundle import bundle_of
from perdure.interop.formats.bundles import cut_to
from perdure.interop.formats.claude_code import writer as claude_code
from perdure.interop.formats.codex import writer as codex
from perdure.interop.formats.conversation import Conversation, conversation_of
from perdure.interop.formats.native import Bundle
from perdure.interop.formats.opencode import writer as opencode
from perdure.interop.formats.operator import writer as operator
from perdure.interop.formats.sources.content import FileContent
from perdure.interop.pi_export import pi_of
from perdure.interop.reports import Exported
from perdure.interop.source_files import FileRelation, Original, originals_of, relation_of
from perdure.session.clock import moment_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import OPAQUE
from perdure.session.notes import LeafMoved, source_of
from perdure.stores.session_store import SessionStore

Program = Literal["claude-code", "codex", "pi", "operator", "opencode"]
"""Programs that can continue a session from a file that perdure wrote."""

PROGRAMS: tuple[Program, ...] = get_args(Program)


class Continuation(msgspec.Struct, frozen=True):
    """The file and command with which a program continues a session.

    Shape: `path` is relative to the folder of the program's sessions. `command` continues the
    session. Run `command` in the folder `cwd`, after the command `before` if there is one.
    ``{file}`` in `command` and `before` stands for the file.
    """

    program: Program
    path: PurePosixPath
    exported: Exported
    command: tuple[str, ...]
    cwd: str
    before: tuple[str, ...] = ()


class _Form(msgspec.Struct, frozen=True):
    """How a program names, reads and opens a session."""

    path: Callable[[Conversation, str], str]
    write: Callable[[Bundle, Conversation], Exported]
    command: Callable[[str], tuple[str, ...]]
    id: Callable[[Conversation], str] = lambda said: str(said.id)
    before: tuple[str, ...] = ()


class OriginalFile(msgspec.Struct, frozen=True):
    """The imported file of another program's session, and that program's command to resume it.

    Shape: ``{file}`` in `command` stands for the file. `content` is the newest imported version.
    """

    name: str
    command: tuple[str, ...]
    cwd: str | None
    content: Original

    def is_still_at(self, path: Path) -> bool:
        """Return whether the file `path` begins with the imported content. Blocks."""
        with FileContent(path) as content:
            return relation_of(content, self.content) in (FileRelation.SAME, FileRelation.GROWN)


async def original_of(
    store: SessionStore, stream: StreamId, program: Program
) -> OriginalFile | None:
    """Return the file of `program` that has the whole session `stream`.

    Return None if `program` did not write the session, or if the session has later entries or
    another leaf than the file.
    Raises: SessionNotFound if the session does not exist.
    """
    header = (await store.state(stream)).header
    entries = await store.entries(stream)
    originals = originals_of(entries)
    form = _FORMS[program]
    if header.fork is not None or not originals or form.before or any(map(_is_own, entries)):
        return None
    source = originals[-1].parts[-1].source
    id = source.file_session or ""
    command = form.command(id)
    if {each.format for each in originals} != {program}:
        return None
    is_bad = not id[:1].isalnum() or not id.isprintable()
    if "{file}" not in command and (is_bad or id not in source.name):
        return None  # the file of a subagent, which has the id of another session, or a bad id
    return OriginalFile(source.name, command, _safe_folder(header.cwd), originals[-1])


def _safe_folder(cwd: str | None) -> str | None:
    """Return `cwd` if it is an absolute, printable path; otherwise return None.

    An absolute path cannot be mistaken for an option of a command.
    """
    if cwd is None or not cwd.isprintable():
        return None
    is_whole = PurePosixPath(cwd).is_absolute() or PureWindowsPath(cwd).is_absolute()
    return cwd if is_whole else None


def _is_own(entry: Entry) -> bool:
    """Return whether `entry` changes the next request's content and was added by perdure itself."""
    if entry.kind == OPAQUE:
        return False
    changes = entry.lane == "tree" or entry.kind == LeafMoved.kind
    return changes and source_of(entry.body) is None


async def continuation_of(
    store: SessionStore,
    stream: StreamId,
    program: Program,
    *,
    cwd: str,
    leaf: EntryId | None = None,
) -> Continuation:
    """Return a file with which `program` continues `stream` from its current leaf or from `leaf`.

    `cwd` is used if the session has no folder, or if its folder is not absolute or contains control
    characters. The same leaf always gives the same file.
    Raises: SessionNotFound or Erased if the session is missing or was erased. Raises FormatError
    for a session without messages.
    """
    bundle = await bundle_of(store, stream)
    if leaf is not None:
        bundle = cut_to(bundle, leaf)
    conversation = conversation_of(bundle)
    if not conversation.said:
        raise FormatError(stream, f"it has no messages for {program} to continue")
    folder = _safe_folder(conversation.cwd) or cwd
    conversation = msgspec.structs.replace(conversation, cwd=folder)
    form = _FORMS[program]
    return Continuation(
        program,
        PurePosixPath(form.path(conversation, folder)),
        form.write(bundle, conversation),
        form.command(form.id(conversation)),
        folder,
        form.before,
    )


def _pi_path(conversation: Conversation, cwd: str) -> str:
    folder = cwd.removeprefix("/").translate(str.maketrans("/\\:", "---"))
    at = moment_of(conversation.created_at)
    stamp = f"{at:%Y-%m-%dT%H-%M-%S}-{at.microsecond // 1000:03}Z"
    return f"--{folder}--/{stamp}_{conversation.id}.jsonl"


def _operator_name(conversation: Conversation) -> str:
    at = moment_of(conversation.created_at)
    return f"{at:%Y-%m-%dT%H-%M-%S-%f}_{conversation.id}.jsonl"


_FORMS: Mapping[Program, _Form] = {
    "claude-code": _Form(
        lambda said, cwd: f"{claude_code.folder_of(cwd)}/{claude_code.file_name(said)}",
        lambda _, said: claude_code.transcript_file(said),
        lambda id: ("claude", "--resume", id),
    ),
    "codex": _Form(
        lambda said, _: codex.file_name(said),
        lambda _, said: codex.rollout_file(said),
        lambda id: ("codex", "resume", id),
    ),
    "pi": _Form(
        _pi_path,
        lambda bundle, _: pi_of(bundle),
        lambda _: ("pi", "--session", "{file}"),
    ),
    "operator": _Form(
        lambda said, _: _operator_name(said),
        lambda bundle, _: operator.file_of(bundle),
        lambda _: ("operator", "--repl", "--session-file", "{file}"),
    ),
    "opencode": _Form(
        lambda said, _: opencode.file_name(said),
        lambda _, said: opencode.export_file(said),
        lambda id: ("opencode", "--session", id),
        opencode.session_id,
        before=("opencode", "import", "{file}"),
    ),
}
