"""Run an allowed command without a shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from perdure.errors import ApprovalStale, InvalidArguments, ToolDenied, ToolError
from perdure.tools.approval import Bound
from perdure.tools.bound_facts import RULES, folder_fact, shown_facts
from perdure.tools.builtin.named_files import program_facts, script_facts, started_facts
from perdure.tools.builtin.proposal import proposing
from perdure.tools.commands import NeedsShell, argv_of, canonical, is_allowed, words_of
from perdure.tools.decorator import tool
from perdure.tools.permissions import MAX_COMMAND_S, Permissions
from perdure.tools.processes import exit_report, program_of, run_program, small_environment
from perdure.tools.spec import Subject, ToolCall, ToolOutput

_CONFIG_ONLY = frozenset(
    (
        *("cwd", "env", "environment", "timeout", "timeoutMs", "timeout_ms", "timeout_s", "shell"),
        *("stdin", "input", "user", "uid", "detach", "background"),
    )
)

_MAX_RULES = 400
"""Maximum number of characters of the list of rules that a rejection contains."""


def about_command(args: Mapping[str, object], permissions: Permissions) -> Subject:
    """Describe a command to a person who approves it; reject commands that are not allowed."""
    argv = allowed_argv(args, permissions)
    return Subject(canonical(argv), canonical(argv))


def _require_approved(call: ToolCall, approved: Mapping[str, str]) -> None:
    """Reject the call if a person approved other files or another folder.

    Raises: ApprovalStale if the facts differ. Raises ToolError if the facts cannot be read.
    """
    now = shown_facts(bind_command(call).facts)
    if now != {name: fact for name, fact in approved.items() if name not in RULES}:
        raise ApprovalStale(call.tool)


def argv_in(args: Mapping[str, object]) -> tuple[str, ...]:
    """Return the words of the command in `args`, as an argument list.

    Raises: InvalidArguments if the command needs a shell.
    """
    line, more = str(args["command"]), args.get("args")
    try:
        if isinstance(more, list):
            return argv_of((line, *(str(word) for word in more)))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - checked by the schema
        return words_of(line)
    except NeedsShell as error:
        raise InvalidArguments(
            "run_command", f"there is no shell here: {error}; give one program and its arguments"
        ) from None


def allowed_argv(args: Mapping[str, object], permissions: Permissions) -> tuple[str, ...]:
    """Return the words of the command in `args`, as an argument list.

    Raises: InvalidArguments if the command needs a shell. Raises ToolDenied if the command is not
    allowed.
    """
    argv = argv_in(args)
    exact, globs = permissions.allowed_commands, permissions.allowed_command_globs
    if not is_allowed(argv, exact, globs):
        rules = "; ".join((*exact, *globs))
        shown = rules if len(rules) <= _MAX_RULES else f"{rules[:_MAX_RULES]}…"
        told = f"the command is not one of those that are allowed: {shown or 'none'}"
        raise ToolDenied("run_command", f"{told} (a pattern matches no option)" if globs else told)
    return argv


def bind_command(call: ToolCall) -> Bound:
    """Return the facts that an approval of a command covers.

    The facts are the command, its folder, program files, environment names and scripts.
    """
    argv = allowed_argv(call.args, call.permissions)
    path = small_environment(os.environ, call.working_dir)["PATH"]
    try:
        folder = Path(os.path.realpath(call.working_dir, strict=True))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        reason = f"the working directory cannot be used: {error.strerror}"
        raise ToolError("run_command", reason) from None
    try:
        where = folder_fact(str(folder), descriptor)
    finally:
        os.close(descriptor)
    program = program_facts(program_of(argv[0], path, "run_command"), folder)
    scripts = script_facts(argv, folder) | started_facts(argv, folder, path)
    names = ", ".join(sorted(call.permissions.command_env)) or "none"
    facts = {"command": canonical(argv), "folder": where, "environment": names}
    held = {name: fact for name, fact in (*program.items(), *scripts.items()) if name != "program"}
    told = "; ".join(f"{name} = {fact}" for name, fact in held.items())
    always = f" in {folder}, program {program['program']}, environment {names}; {told}"
    return Bound({**facts, **program, **scripts}, always)


@proposing("process", about_command, bind=bind_command, config_only=_CONFIG_ONLY)
@tool(effect="external", timeout_s=MAX_COMMAND_S + 10)
async def run_command(
    command: Annotated[str, "The program; or the whole line, quoted as for a shell."],
    args: Annotated[
        list[str] | None, "The arguments, each as it is; then command is one word."
    ] = None,
    *,
    call: ToolCall,
) -> ToolOutput:
    """Run one program in the working directory and wait until it ends. There is no shell.

    Only commands that are allowed run. Returns the exit code, the output, and the error output.
    """
    permissions = call.permissions
    argv = allowed_argv({"command": command, "args": args}, permissions)
    given = {name: call.secrets.fill(text) for name, text in permissions.command_env.items()}
    if call.approved is not None and given:  # looking up a secret may have taken time
        await asyncio.to_thread(_require_approved, call, call.approved)
    ended = await run_program(
        argv,
        tool=call.tool,
        working_dir=call.working_dir,
        environment={**small_environment(os.environ, call.working_dir), **given},
        timeout_s=permissions.command_timeout_s,
    )
    return ToolOutput(exit_report(ended, permissions.command_timeout_s), is_error=ended.code != 0)
