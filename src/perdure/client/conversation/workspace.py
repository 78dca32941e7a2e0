"""The situation a session runs in, and the names by which instructions and tools may use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from perdure.bounds.files import read_named_text
from perdure.client.clock import absolute
from perdure.client.conversation.binding import Binding
from perdure.errors import ConfigError, LimitExceeded, WrongArgument
from perdure.secrets.pasted import pasted
from perdure.session.declared.arguments import check_fields
from perdure.session.notes import WorkspaceChanged
from perdure.tools.permissions import Scope
from perdure.workflow.templates import with_context

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

    def __str__(self) -> str:
        return f"{self.file}:{self.start_line}-{self.end_line}"


class Workspace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The situation a session runs in, kept with it.

    `working_dir` is where file tools look. `git_ref` is the branch or commit checked out there,
    found by itself where it is None. `active_file` and `selection` are what an editor shows.
    `scope` says where file tools may go, None as far as the agent allows. All but `scope`, and each
    of `variables`, fill ``{{ctx.name}}`` in the agent's instructions and in the descriptions of its
    tools. They are stored in plain text and must not hold secrets.
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
            "selection": None if self.selection is None else str(self.selection),
            "git_ref": self.git_ref,
        }
        return {**{name: text for name, text in known.items() if text}, **self.variables}


def moved_to(kept: Workspace, folder: str) -> Workspace:
    """Return `kept` with the working directory `folder`, and what is checked out there."""
    return msgspec.structs.replace(kept, working_dir=folder, git_ref=git_ref_of(Path(folder)))


def merged(kept: Workspace, given: Workspace) -> Workspace:
    """Return `kept` as `given`, which was `detected`, changes it.

    Variables, a file and a selection that `given` does not name stay; so does the scope.
    """
    is_moved = given.working_dir != kept.working_dir
    return msgspec.structs.replace(
        kept,
        working_dir=given.working_dir,
        variables={**kept.variables, **given.variables},
        active_file=given.active_file or kept.active_file,
        selection=given.selection or kept.selection,
        git_ref=given.git_ref if is_moved else kept.git_ref,
    )


def with_message(
    kept: Workspace,
    active_file: str | None,
    selection: Selection | None,
    variables: Mapping[str, str] | None,
) -> Workspace:
    """Return `kept` as a message changes it; None leaves what there is.

    A new active file takes the old selection away; "" is no file.
    Raises: SecretPasted when a variable holds what looks like a credential.
    """
    given = dict(variables or {})
    _require_no_secret(given)
    is_elsewhere = active_file is not None
    return msgspec.structs.replace(
        kept,
        active_file=(active_file or None) if is_elsewhere else kept.active_file,
        selection=selection if is_elsewhere else selection or kept.selection,
        variables={**kept.variables, **given},
    )


def _require_no_secret(variables: Mapping[str, str]) -> None:
    for name, text in variables.items():
        pasted(text, "refuse", f"the workspace variable {name!r}")


def change_of(kept: Binding, place: Workspace) -> WorkspaceChanged | None:
    """Return the entry by which the session of `kept` goes on in `place`; None if it is there.

    Raises: ConfigError for a name that its instructions use and `place` lacks.
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
    """Return the system prompt in `place`, which is `prompt` in the workspace `before`.

    `told` are the instructions, `where` is what errors call them. A prompt that holds more than
    they say, such as that of a flow's role, stays as it is.
    Raises: ConfigError for a name that `told` uses and `place` lacks.
    """
    if (with_context(told, before.names, where) or None) != prompt:
        return prompt
    return with_context(told, place.names, where) or None


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
    _require_no_secret(place.variables)
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
