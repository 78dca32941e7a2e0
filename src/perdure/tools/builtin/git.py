"""Git in the working directory: looking at it, and committing behind a gate.

Every flag is ours. What a repository's own files could make git run (hooks, external diffs, text
conversion, file system monitors, pagers, editors, signing) is switched off, and git looks for the
repository in the working directory only, not above it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
from msgspec import Meta

from perdure.errors import InvalidArguments, ToolDenied, ToolError
from perdure.tools.approval import Bound
from perdure.tools.builtin.named_files import file_at
from perdure.tools.builtin.processes import Ended, run_program, small_environment, told
from perdure.tools.builtin.proposing import proposing
from perdure.tools.declare import tool
from perdure.tools.paths.floors import is_secret
from perdure.tools.permissions import Permissions
from perdure.tools.spec import Subject, ToolCall, ToolOutput

TIMEOUT_S = 30.0
MAX_MESSAGE = 8000

_GIT = (
    "git",
    "--no-pager",
    "--no-optional-locks",
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.pager=cat"),
    *("-c", "core.editor=true"),
    *("-c", "core.askPass=true"),
    *("-c", "credential.helper="),
    *("-c", "protocol.allow=never"),
    *("-c", "color.ui=false"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "submodule.recurse=false"),
)
_LOOKS: Mapping[str, Sequence[str]] = {
    "status": ("status", "--porcelain=v1", "--branch", "--ignore-submodules=all"),
    "log": ("log", "--max-count=30", "--oneline", "--decorate", "--no-ext-diff"),
    "diff": ("diff", "HEAD", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all"),
}


@tool(effect="read", on_unknown="retry")
async def git_status(
    command: Annotated[Literal["status", "log", "diff"], "What to look at."] = "status",
    *,
    call: ToolCall,
) -> ToolOutput:
    """See the state of the git repository in the working directory: status, log or diff."""
    return _output(await _git(call, _LOOKS[command]))


def about_commit(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """The commit a call is about, refused already when a file of it is a secret or a flag."""
    message = str(args["message"])
    if not message.strip() or "\0" in message:
        raise InvalidArguments("git_commit", "message: say what was changed")
    files = cast("Sequence[str]", args.get("files") or ())
    for path in files:
        if not path or path.startswith("-") or "\0" in path:
            raise InvalidArguments("git_commit", "files: a path does not begin with - or is empty")
        if is_secret(path.split("/")):
            raise ToolDenied("git_commit", "a file that holds credentials is not committed")
    first = message.strip().splitlines()[0]
    return Subject(f"{first} ({', '.join(files) if files else 'what is staged'})")


def bind_commit(call: ToolCall) -> Bound:
    """The repository's folder, and each file that is committed, or else its index."""
    folder = Path(os.path.realpath(call.working_dir))
    files = cast("Sequence[str]", call.args.get("files") or ())
    facts = {"folder": str(folder)}
    for name in files:
        facts[f"file {name}"] = file_at(folder / name)
    if not files:
        facts["index"] = file_at(_git_dir(folder) / "index")
    return Bound(facts)


def _git_dir(folder: Path) -> Path:
    """The repository of `folder`, which for a worktree is named in a file."""
    place = folder / ".git"
    try:
        text = place.read_text()[:4096] if place.is_file() else ""
    except (OSError, ValueError):
        text = ""
    return folder / text.removeprefix("gitdir:").strip() if text else place


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
    """Commit in the git repository of the working directory. A person is asked each time."""
    about_commit({"message": message, "files": files}, call.permissions)
    paths = ("--", *files) if files else ()
    if paths:
        added = await _git(call, ("add", "--intent-to-add", *paths))
        if added.code != 0:
            return _output(added)
    return _output(await _git(call, ("commit", f"--message={message}", "--no-verify", *paths)))


async def _git(call: ToolCall, words: Sequence[str]) -> Ended:
    place = call.working_dir.resolve()
    environment = {
        **small_environment(os.environ, call.working_dir),
        "GIT_CEILING_DIRECTORIES": str(place.parent),
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ATTR_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }
    ended = await run_program(
        (*_GIT, *words),
        tool=call.tool,
        working_dir=call.working_dir,
        environment=environment,
        timeout_s=TIMEOUT_S,
    )
    if ended.code == 128 and b"not a git repository" in ended.stderr:
        raise ToolError(call.tool, "the working directory is not the top of a git repository")
    stderr = ended.stderr.replace(str(place).encode(), b".")
    return msgspec.structs.replace(ended, stderr=stderr)


def _output(ended: Ended) -> ToolOutput:
    if ended.code == 0:
        return ToolOutput(ended.stdout.decode(errors="replace").rstrip("\n") or "[nothing]")
    return ToolOutput(told(ended, TIMEOUT_S), is_error=True)
