"""Run git so that a repository cannot start programs, fetch, or lead git to files outside of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

import msgspec

from perdure.errors import ToolDenied, ToolError, ToolUnavailable
from perdure.tools.git.configuration import settings_in
from perdure.tools.git.keys import ALWAYS, Setting, overrides_of
from perdure.tools.git.repository import Repository, repository_at
from perdure.tools.processes import ProcessResult, run_program, small_environment
from perdure.tools.spec import ToolCall

_OWN: Mapping[str, str] = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ASKPASS": "true",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_EDITOR": "true",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_PROXY_COMMAND": "",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_SSH_COMMAND": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C.UTF-8",
}
"""Environment variables that override git's configuration."""

_NEVER_TRACKED = (
    *(":(glob)[.][.]/**", ":(glob)**/[.][.]/**", "[/]*"),
    *(":(glob,icase)[.]git/**", ":(glob,icase)**/[.]git/**"),
)
"""Patterns of paths that git never adds to an index; a manipulated index may contain such paths.

Git would read a file with such a path as if the file were in the working directory. A part in
brackets makes git treat the path as a pattern. Git compares a pattern with paths but never resolves
it.
"""


SETTINGS = "git settings"
"""Name of the fact which states, in an approval, the repository settings that a person allowed."""


def repository_of(call: ToolCall) -> Repository:
    """Return the repository at the top of the working directory of `call`. Blocks the thread.

    Raises: ToolError if there is no repository. Raises ToolDenied if perdure cannot use it safely.
    """
    place = call.working_dir
    try:
        return repository_at(place, small_environment(os.environ, place))
    except ToolError as error:
        raise type(error)(call.tool, error.reason) from None


class Git(msgspec.Struct, frozen=True):
    """Runs git for one call of a tool, and overrides the repository's unsafe settings."""

    call: ToolCall
    repository: Repository
    timeout_s: float
    settings: tuple[Setting, ...] = ()

    @classmethod
    async def of(cls, call: ToolCall, timeout_s: float) -> Git:
        """Return a `Git` for the repository in the working directory of `call`.

        Raises: ToolError if there is no repository. Raises ToolDenied if the repository has a
        setting that was not allowed. Raises ToolUnavailable if git is missing or too old.
        """
        repository = await asyncio.to_thread(repository_of, call)
        if repository.grant is not None and (call.approved or {}).get(SETTINGS) != repository.grant:
            reason = f"the repository sets {repository.concern_names}, which was not allowed"
            raise ToolDenied(call.tool, reason)
        bare = cls(call, repository, timeout_s)
        listed = await bare.run("config", "--list", "-z")
        if listed.code != 0 or listed.left_out:
            raise ToolDenied(call.tool, "the repository's configuration cannot be listed")
        settings = tuple(settings_in(listed.stdout))
        in_force = {setting.key: setting.value or "" for setting in settings}
        if any(in_force.get(key) != value for key, value in ALWAYS.items()):
            raise ToolUnavailable(call.tool, "git 2.31 or newer is needed")
        git = msgspec.structs.replace(bare, settings=settings)
        outside = await git.run("ls-files", "-z", "--", *_NEVER_TRACKED, is_literal=False)
        if outside.code != 0 or outside.stdout:
            raise ToolDenied(call.tool, "the repository's index names files outside of it")
        return git

    async def run(
        self, *words: str, requires_filters: bool = False, is_literal: bool = True
    ) -> ProcessResult:
        """Run git with the arguments `words`.

        If `is_literal` is True, git does not treat paths in the arguments as patterns. If
        `requires_filters` is True, git refuses to store files that a filter would change.
        """
        overrides = overrides_of(
            self.settings, self.repository.own, requires_filters=requires_filters
        )
        place = self.repository.top
        environment = {
            **small_environment(os.environ, self.call.working_dir),
            **_OWN,
            **_as_variables(overrides),
            "GIT_DIR": str(self.repository.git_dir),
            "GIT_WORK_TREE": str(place),
        }
        if is_literal:
            environment["GIT_LITERAL_PATHSPECS"] = "1"
        ended = await run_program(
            ("git", "--no-pager", "--no-optional-locks", *words),
            tool=self.call.tool,
            working_dir=place,
            environment=environment,
            timeout_s=self.timeout_s,
        )
        stderr = ended.stderr.replace(str(place).encode(), b".")
        return msgspec.structs.replace(ended, stderr=stderr)


def _as_variables(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return `overrides` as environment variables of git.

    In these variables, unlike in a configuration file, keys need no quotes.
    """
    variables = {"GIT_CONFIG_COUNT": str(len(overrides))}
    for number, (key, value) in enumerate(overrides.items()):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def names_of(listed: bytes) -> Sequence[str]:
    """Return the paths in the output of git with ``-z``."""
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]
