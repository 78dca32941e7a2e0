"""The workspace of a session: its folder, its editor state, and the values of ``{{ctx.name}}``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

import msgspec

from perdure.bounds.files import read_named_text
from perdure.bounds.limits import require_within
from perdure.bounds.short_repr import ShortRepr, short_repr
from perdure.client.clock import absolute
from perdure.errors import ConfigError, LimitExceeded, WrongArgument
from perdure.secrets.pasted_keys import apply_paste_policy
from perdure.session.argument_checks import NamedParameters, check_fields
from perdure.session.notes import WorkspaceChanged
from perdure.tools.permissions import Scope
from perdure.workflow.templates import context_names, with_context

if TYPE_CHECKING:
    from perdure.client.conversation.agent_binding import Binding

_HEAD_BYTES = 4096
_HEAD = re.compile(r"(?:ref:\s*)?(refs/[^\s~^:?*\[\\]+|[0-9a-f]{4,64})")
"""The format of git's HEAD file; checked, because a link named HEAD can lead to any file."""


class Selection(ShortRepr, frozen=True, metaclass=NamedParameters):
    """A selection in an editor: lines of a file, counted from 1, inclusive.

    Raises: WrongArgument when the selection ends before it begins.
    """

    file: str
    start_line: int
    end_line: int

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.start_line <= self.end_line:
            raise WrongArgument(f"lines {self.start_line} to {self.end_line} are no selection")

    def __str__(self) -> str:
        return f"{self.file}:{self.start_line}-{self.end_line}"


_OWN_NAMES = ("working_dir", "git_ref", "active_file", "selection")
"""Names for ``{{ctx.name}}`` that the workspace defines; no variable may have such a name."""


class Workspace(msgspec.Struct, frozen=True, omit_defaults=True, metaclass=NamedParameters):
    """The workspace of a session, stored with it.

    `working_dir` is the folder of file tools; a relative path is resolved in the current folder.
    Without `working_dir`, a new session uses the current folder, and a resumed session keeps its
    folder. `git_ref` is the branch or commit checked out in the folder. If `git_ref` is None, the
    repository is read. `active_file` and `selection` come from an editor; the file of a selection
    becomes the active file. `scope` limits the paths of file tools (None: the agent's scope). In
    the agent's instructions and in the descriptions of its tools, ``{{ctx.name}}`` is replaced by
    the variable `name`, or by the field `name` (not `scope`). If `working_dir`, `git_ref`,
    `active_file` or `selection` has no value, its placeholder is replaced by empty text. All values
    are stored in plain text and must not contain secrets.
    """

    __repr__ = short_repr

    working_dir: str = ""
    variables: dict[str, str] = {}
    active_file: str | None = None
    selection: Selection | None = None
    git_ref: str | None = None
    scope: Scope | None = None

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0917 - one for each field
            self,
            working_dir: str | os.PathLike[str] | None = None,
            variables: Mapping[str, str] = {},
            active_file: str | None = None,
            selection: Selection | None = None,
            git_ref: str | None = None,
            scope: Scope | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        folder = cast("str | os.PathLike[str] | None", self.working_dir)
        if folder is None or isinstance(folder, os.PathLike):
            text = "" if folder is None else os.fspath(folder)
            msgspec.structs.force_setattr(self, "working_dir", text)
        check_fields(self)

    @property
    def names(self) -> dict[str, str]:
        """The values of ``{{ctx.name}}``: the variables and the fields of the workspace."""
        return {
            "working_dir": self.working_dir,
            "active_file": self.active_file or "",
            "selection": "" if self.selection is None else str(self.selection),
            "git_ref": self.git_ref or "",
            **self.variables,
        }


class Shown(msgspec.Struct, frozen=True):
    """The changes that a message makes to the workspace; a field that is None changes nothing.

    Raises: SecretPasted if a variable contains a credential; WrongArgument if a variable has the
    name of a workspace field, or if the selection is not in the active file.
    """

    active_file: str | None = None
    selection: Selection | None = None
    variables: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        require_variables(self.variables)
        _require_no_nul(self.active_file, self.selection)
        _require_one_file(self.active_file, self.selection)

    def __bool__(self) -> bool:
        return self != Shown()


def moved_to(kept: Workspace, folder: str) -> Workspace:
    """Return the workspace `kept` with the working directory `folder` and its git reference."""
    return msgspec.structs.replace(kept, working_dir=folder, git_ref=git_ref_of(Path(folder)))


def merge_workspace(kept: Workspace, given: Workspace) -> Workspace:
    """Return the workspace `kept` with the changes in `given`.

    A folder, variable, file or selection that `given` omits stays unchanged. The scope always stays
    unchanged.
    Raises: the errors of `usable`.
    """
    given = usable(given)
    folder = given.working_dir or kept.working_dir
    place = kept if folder == kept.working_dir else moved_to(kept, folder)
    place = msgspec.structs.replace(place, git_ref=given.git_ref or place.git_ref)
    return with_shown(place, Shown(given.active_file, given.selection, given.variables))


def with_shown(kept: Workspace, shown: Shown) -> Workspace:
    """Return the workspace `kept` with the values that a message shows the agent.

    A file without a selection clears the old selection; the file "" clears the active file. If only
    a selection is given, the file of the selection becomes the active file.
    """
    file, selected = shown.active_file, shown.selection
    if file is None and selected is None:
        file, selected = kept.active_file, kept.selection
    elif file is None and selected is not None:
        file = selected.file
    variables = {**kept.variables, **shown.variables}
    return msgspec.structs.replace(
        kept, active_file=file or None, selection=selected, variables=variables
    )


def require_variables(variables: Mapping[str, str]) -> None:
    """Reject invalid variables.

    Raises: WrongArgument if a name or text is invalid; LimitExceeded if all variables together are
    too long; SecretPasted if a text contains a credential.
    """
    size = sum(len(name) + len(text.encode("utf-8", "replace")) for name, text in variables.items())
    require_within("template_bytes", size, "the text of the workspace variables")
    for name, text in variables.items():
        if not context_names(f"{{{{ctx.{name}}}}}") or "\0" in text:
            what = "NAME without a NUL" if "\0" in text else "letters, digits and _"
            raise WrongArgument(
                f"a workspace variable cannot be {name!r}: use {what}", argument="variables"
            )
        if name in _OWN_NAMES:
            raise WrongArgument(
                f"a workspace variable cannot be named {name!r}: {{{{ctx.{name}}}}} is the "
                "workspace's own; choose another name",
                argument="variables",
            )
        apply_paste_policy(text, "refuse", f"the workspace variable {name!r}")


def _require_no_nul(active_file: str | None, selection: Selection | None) -> None:
    for argument, file in (
        ("active_file", active_file),
        ("selection", None if selection is None else selection.file),
    ):
        if file is not None and "\0" in file:
            told = f"{argument} {file!r:.80} holds a NUL: name a file"
            raise WrongArgument(told, argument=argument, takes="a path")


def _require_one_file(active_file: str | None, selection: Selection | None) -> None:
    if active_file is None or selection is None:
        return
    short, long = sorted((_parts(active_file), _parts(selection.file)), key=len)
    if not short or long[-len(short) :] != short:  # one may be absolute, the other in its folder
        raise WrongArgument(
            f"the selection {selection} is not in active_file {active_file!r}: give the file of "
            "the selection, or leave active_file out",
            argument="active_file",
        )


def _parts(file: str) -> tuple[str, ...]:
    return PurePath(os.path.normpath(file)).parts if file else ()


def require_folder(folder: str) -> None:
    """Raises: ConfigError when `folder` is not a folder."""
    if not os.path.isdir(folder):  # noqa: PTH112 - a path with a NUL in it is no folder either
        what = "it is a file" if os.path.exists(folder) else "it does not exist"  # noqa: PTH110 - as above
        raise ConfigError(f"a session cannot work in {folder!r}: {what}; name a folder that exists")


def change_of(kept: Binding, place: Workspace) -> WorkspaceChanged | None:
    """Return the entry that changes the workspace to `place`; None if it is already `place`.

    Raises: ConfigError if `place` has no value for a name that the agent's instructions use.
    """
    before = kept_workspace(kept.workspace)
    if place == before:
        return None
    agent = kept.agent or {}
    told, where = agent.get("instructions"), f"the instructions of agent {agent.get('id')!r}"
    told = told if isinstance(told, str) else ""
    prompt = moved_prompt(told, where, kept.system_prompt, before, place)
    is_same = prompt == kept.system_prompt
    return WorkspaceChanged(msgspec.to_builtins(place), msgspec.UNSET if is_same else prompt)


def moved_prompt(
    told: str, where: str, prompt: str | None, before: Workspace, place: Workspace
) -> str | None:
    """Return the system prompt for the workspace `place`; `prompt` is the prompt for `before`.

    `told` are the instructions, and `where` is their name in error messages.
    If `prompt` contains more than the instructions, as in the session of a flow's role, it is
    returned unchanged.
    Raises: ConfigError if `place` has no value for a name that `told` uses.
    """
    if (with_context(told, before.names, where) or None) != prompt:
        return prompt
    return with_context(told, place.names, where) or None


def kept_workspace(snapshot: Mapping[str, object] | None) -> Workspace:
    """Return the stored workspace of a session.

    Raises: ConfigError if the workspace cannot be read.
    """
    try:
        return msgspec.convert(snapshot or {}, Workspace)
    except (msgspec.ValidationError, WrongArgument) as error:
        raise ConfigError(f"the session's workspace cannot be read: {error}") from error


def usable(given: Workspace) -> Workspace:
    """Return `given` with an absolute directory, if it has a directory.

    Raises: ConfigError when the directory is not a folder; the errors of `Shown`.
    """
    shown = Shown(given.active_file, given.selection, given.variables)
    folder = absolute(given.working_dir or None)
    if folder is not None:
        require_folder(folder)
    return msgspec.structs.replace(with_shown(given, shown), working_dir=folder or "")


def detect_workspace(workspace: Workspace | None) -> Workspace:
    """Return `workspace` with an absolute directory and its git reference.

    Raises: the errors of `usable`.
    """
    place = usable(workspace or Workspace())
    return in_folder(place, place.working_dir or ".")


def in_folder(place: Workspace, folder: str) -> Workspace:
    """Return the workspace `place` with the absolute path of `folder` and its git reference."""
    folder = absolute(folder) or "."
    git_ref = place.git_ref or git_ref_of(Path(folder))
    return msgspec.structs.replace(place, working_dir=folder, git_ref=git_ref)


def git_ref_of(folder: Path) -> str | None:
    """Return the branch or commit checked out in the repository around `folder`, or None.

    The function reads the repository's files and runs no program; unreadable files count as
    missing.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        try:
            if git.is_file():  # a worktree or a submodule: the file names its repository
                named = read_named_text(git)[:_HEAD_BYTES].removeprefix("gitdir:").strip()
                git = place / named
            if git.is_dir():
                found = _HEAD.fullmatch(read_named_text(git / "HEAD")[:_HEAD_BYTES].strip())
                return None if found is None else found[1].removeprefix("refs/heads/")
        except (OSError, UnicodeDecodeError, LimitExceeded):
            return None
    return None
