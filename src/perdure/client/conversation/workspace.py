"""The situation a session runs in, and the names by which instructions and tools may use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from perdure.bounds.files import read_named_text
from perdure.client.clock import absolute
from perdure.errors import ConfigError, LimitExceeded, WrongArgument
from perdure.secrets.pasted import pasted
from perdure.session.declared.arguments import check_fields
from perdure.tools.permissions import Scope

_HEAD_BYTES = 4096
_HEAD = re.compile(r"(?:ref:\s*)?(refs/[^\s~^:?*\[\\]+|[0-9a-f]{4,64})")
"""What git writes into HEAD; a link of that name may lead to any other file."""


class Selection(msgspec.Struct, frozen=True):
    """What is selected in an editor: lines of a file, from 1, both included.

    Raises: WrongArgument when it ends before it begins.
    """

    file: str
    start_line: int
    end_line: int

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.start_line <= self.end_line:
            raise WrongArgument(f"lines {self.start_line} to {self.end_line} are no selection")


class Workspace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The situation a session runs in, kept with it.

    `working_dir` is where file tools look. `git_ref` is the branch or commit checked out there,
    found by itself where it is None. `scope` says where file tools may go, None as far as the agent
    allows. `variables` fill ``{{ctx.name}}`` in the agent's instructions and in the descriptions of
    its tools, once, at the start; they are stored in plain text and must not hold secrets.
    """

    working_dir: str = "."
    variables: dict[str, str] = {}
    active_file: str | None = None
    selection: Selection | None = None
    git_ref: str | None = None
    scope: Scope | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def names(self) -> dict[str, str]:
        """What ``{{ctx.name}}`` may name: the variables, and what else is known."""
        known = {
            "working_dir": self.working_dir,
            "active_file": self.active_file,
            "git_ref": self.git_ref,
        }
        return {**{name: text for name, text in known.items() if text}, **self.variables}


def kept_workspace(snapshot: Mapping[str, object] | None) -> Workspace:
    """The workspace that a session keeps. Raises: ConfigError when it cannot be read."""
    try:
        return msgspec.convert(snapshot or {}, Workspace)
    except (msgspec.ValidationError, WrongArgument) as error:
        raise ConfigError(f"the session's workspace cannot be read: {error}") from error


def detected(workspace: Workspace | None) -> Workspace:
    """`workspace` with an absolute directory, and what can be found out about it.

    Raises: SecretPasted when a variable holds what looks like a credential.
    """
    place = workspace or Workspace()
    for name, text in place.variables.items():
        pasted(text, "refuse", f"the workspace variable {name!r}")
    folder = absolute(place.working_dir) or "."
    git_ref = place.git_ref or git_ref_of(Path(folder))
    return msgspec.structs.replace(place, working_dir=folder, git_ref=git_ref)


def git_ref_of(folder: Path) -> str | None:
    """The branch, or the commit, that is checked out in the repository around `folder`; else None.

    It is read from the repository's files: nothing is run, and what cannot be read is not known.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        try:
            if git.is_file():  # a worktree or a submodule: it says where its repository is
                named = read_named_text(git)[:_HEAD_BYTES].removeprefix("gitdir:").strip()
                git = place / named
            if git.is_dir():
                found = _HEAD.fullmatch(read_named_text(git / "HEAD")[:_HEAD_BYTES].strip())
                return None if found is None else found[1].removeprefix("refs/heads/")
        except (OSError, UnicodeDecodeError, LimitExceeded):
            return None
    return None
