"""Git in the working directory: read access, and commits with approval.

This module chooses all flags of git; the model cannot pass flags. This module disables settings of
a repository that could start programs, fetch, or lead outside of the working directory
(`tools.git`). This module also tells git where the repository is: at the top of the working
directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, cast

from msgspec import Meta

from perdure.errors import InvalidArguments, ToolDenied, ToolError
from perdure.tools.approval import Bound
from perdure.tools.builtin.named_files import file_at
from perdure.tools.builtin.proposal import proposing
from perdure.tools.decorator import tool
from perdure.tools.git.command import SETTINGS, Git, names_of, repository_of
from perdure.tools.git.configuration import TIMEOUT_S
from perdure.tools.paths.floors import is_secret
from perdure.tools.permissions import Permissions
from perdure.tools.processes import ProcessResult, exit_report
from perdure.tools.spec import Subject, ToolCall, ToolOutput

MAX_MESSAGE = 8000

_LOOKS: Mapping[str, Sequence[str]] = {
    "status": ("status", "--porcelain=v1", "--branch", "--ignore-submodules=all"),
    "log": ("log", "--max-count=30", "--oneline", "--decorate", "--no-ext-diff", "--no-color"),
}
_DIFF = ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
_FILTERED = b"clean filter"


def bind_look(call: ToolCall) -> Bound:
    """Return a `doubt` if the repository has settings that a person must allow before git runs."""
    repository = repository_of(call)
    if repository.grant is None:
        return Bound()
    return Bound({SETTINGS: repository.grant}, doubt=repository.doubt)


@proposing(None, bind=bind_look)
@tool(effect="read", on_unknown="retry")
async def git_status(
    command: Annotated[Literal["status", "log", "diff"], "What to look at."] = "status",
    *,
    call: ToolCall,
) -> ToolOutput:
    """See the state of the git repository in the working directory: status, log or diff."""
    git = await Git.of(call, TIMEOUT_S)
    if command == "diff":
        return await _diff(git)
    return _output(await git.run(*_LOOKS[command]))


def about_commit(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """Describe a commit to a person who approves it; reject secret files and flags."""
    message = str(args["message"])
    if not message.strip() or "\0" in message:
        raise InvalidArguments("git_commit", "message: say what was changed")
    files = cast("Sequence[str]", args.get("files") or ())
    for path in files:
        if not path or path.startswith("-") or "\0" in path:
            raise InvalidArguments("git_commit", "files: a path does not begin with - or is empty")
        _require_open(path)
    first = message.strip().splitlines()[0]
    return Subject(f"{first} ({', '.join(files) if files else 'what is staged'})")


def bind_commit(call: ToolCall) -> Bound:
    """Return the facts that an approval of a commit covers: folder, files or index, settings."""
    repository = repository_of(call)
    folder = Path(os.path.realpath(call.working_dir))
    files = cast("Sequence[str]", call.args.get("files") or ())
    facts = {"folder": str(folder)}
    for name in files:
        facts[f"file {name}"] = file_at(folder / name)
    if not files:
        facts["index"] = file_at(repository.git_dir / "index")
    if repository.grant is not None:
        facts[SETTINGS] = repository.grant
    return Bound(facts, doubt=repository.doubt)


@proposing(
    "process",
    about_commit,
    bind=bind_commit,
    is_gated=True,
    config_only=frozenset(("flags", "args", "amend")),
)
@tool(effect="external")
async def git_commit(
    message: Annotated[str, "The commit's message.", Meta(min_length=1, max_length=MAX_MESSAGE)],
    files: Annotated[list[str] | None, "Files to add and commit; left out: what is staged."] = None,
    *,
    call: ToolCall,
) -> ToolOutput:
    """Commit in the git repository of the working directory. Every commit requires approval."""
    about_commit({"message": message, "files": files}, call.permissions)
    git = await Git.of(call, TIMEOUT_S)
    paths = ("--", *files) if files else ()
    changed = await git.run(*_CHANGES, *paths)
    if changed.code != 0:
        return _output(changed)
    names = list(_to_commit(changed.stdout, is_staged_only=not paths))
    if not names:
        raise ToolError(call.tool, "there is nothing to commit")
    for name in names:
        _require_open(name)
    if paths:
        added = await git.run("add", "--intent-to-add", *paths, requires_filters=True)
        if added.code != 0:
            return _output(added)
    words = ("commit", f"--message={message}", "--no-verify", *paths)
    return _output(await git.run(*words, requires_filters=True))


_CHANGES = (
    "status",
    "--porcelain=v1",
    "-z",
    "--no-renames",
    "--untracked-files=all",
    "--ignore-submodules=dirty",
)


def _to_commit(listed: bytes, *, is_staged_only: bool) -> Iterator[str]:
    """Yield the paths that a commit would change, from the output of git's ``status -z``."""
    for line in names_of(listed):
        state, path = line[:2], line[3:]
        if not is_staged_only or state[0] not in " ?!":
            yield path


async def _diff(git: Git) -> ToolOutput:
    """Return the difference to HEAD, without files that tools are not allowed to read."""
    listed = await git.run(*_DIFF, "--name-only", "-z", "--no-renames")
    if listed.code != 0:
        return _output(listed)
    if listed.left_out:
        raise ToolError(git.call.tool, "too many files differ")
    names = names_of(listed.stdout)
    closed = [name for name in names if is_secret(name.split("/"))]
    without = [f":(top,literal,exclude){name}" for name in closed]
    shown = await git.run(*_DIFF, "--no-color", "--", ".", *without, is_literal=False)
    output = _output(shown)
    if not closed or output.is_error:
        return output
    left = f"[{len(closed)} left out: they hold credentials]"
    return ToolOutput(f"{output.text}\n{left}")


def _require_open(path: str) -> None:
    if is_secret(path.split("/")):
        raise ToolDenied("git_commit", "a file that holds credentials is not committed")


def _output(ended: ProcessResult) -> ToolOutput:
    if ended.code == 0:
        return ToolOutput(ended.stdout.decode(errors="replace").rstrip("\n") or "[nothing]")
    if _FILTERED in ended.stderr:
        return ToolOutput(
            "git_commit: a file would be changed by a filter (filter.*.clean), which perdure does "
            "not run; it has to be committed by a person",
            is_error=True,
        )
    return ToolOutput(exit_report(ended, TIMEOUT_S), is_error=True)
