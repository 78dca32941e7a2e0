"""Permissions of tools in a new chat, from the command line and the settings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, cast

import msgspec
import typer

from perdure.apps.settings.document import commands_and_hosts
from perdure.apps.settings.layers import Configuration
from perdure.errors import PerdureError
from perdure.secrets.mask import MASK, mask_secrets
from perdure.session.printable import safe
from perdure.tools.builtin.shell import argv_in
from perdure.tools.commands import canonical, is_allowed
from perdure.tools.permissions import ApprovalMode, Permissions, Scope

SEARCH_SECRET = "PERDURE_SECRET_SEARCH"  # noqa: S105 - the name of a variable
"""The environment variable with the token of the search endpoint, if the endpoint needs one."""

PATTERNS = (
    "* is any text within one argument, ** at the end is any further arguments; "
    "neither matches an option"
)

NO_COMMANDS = "run_command is not offered: /allow COMMAND or --allow-command names what may run"

_MAX_LINE = 200
"""Maximum length of a command that a remark repeats."""

ApproveOption = Annotated[
    ApprovalMode | None,
    typer.Option(
        "--approve",
        metavar="MODE",
        help="The approval mode: ask, plan (change nothing), accept-edits, auto.",
    ),
]
CommandsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-command",
        metavar="LINE",
        help=f"A command that the agent can run, e.g. 'pytest tests/*': {PATTERNS}.",
    ),
]
DomainsOption = Annotated[
    list[str] | None,
    typer.Option("--allow-domain", metavar="HOST", help="A host that the agent can contact."),
]
ScopeOption = Annotated[
    Scope | None,
    typer.Option(
        "--scope",
        metavar="TIER",
        help="The folders that file tools can use: sandboxed, project, full.",
    ),
]


class TypedPermissions(msgspec.Struct, frozen=True):
    """Permissions on the command line; None or empty means that an option was not given."""

    approve: ApprovalMode | None = None
    commands: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    scope: Scope | None = None

    @property
    def is_any(self) -> bool:
        """Whether any permission is given."""
        return self != TypedPermissions()

    def apply_to(self, kept: Permissions) -> Permissions:
        """Return `kept` changed by the permissions of the command line.

        If a command on the command line is not allowed yet, all commands on the command line are
        added to the allowed commands. If all commands on the command line are already allowed, only
        these commands remain allowed. The same rules apply to hosts as to commands.
        """
        named = commands_and_hosts(self.commands, self.domains)
        lines, globs = set(named.allowed_commands), set(named.allowed_command_globs)
        hosts = set(named.allowed_domains)
        has_all = lines <= {*kept.allowed_commands} and globs <= {*kept.allowed_command_globs}
        if not (self.commands and has_all):
            lines.update(kept.allowed_commands)
            globs.update(kept.allowed_command_globs)
        if not (self.domains and hosts <= {*kept.allowed_domains}):
            hosts.update(kept.allowed_domains)
        return msgspec.structs.replace(
            kept,
            scope=self.scope or kept.scope,
            approval=self.approve or kept.approval,
            allowed_commands=tuple(sorted(lines)),
            allowed_command_globs=tuple(sorted(globs)),
            allowed_domains=tuple(sorted(hosts)),
            credentials={host: text for host, text in kept.credentials.items() if host in hosts},
        )


def permission_lines(permissions: Permissions) -> Iterator[str]:
    """Return the permissions of tools in a chat, and the commands that change them."""
    yield f"approval: {permissions.approval} (/approve MODE changes it)"
    yield from command_lines(permissions)


def command_lines(permissions: Permissions) -> Iterator[str]:
    """Return lines that list the allowed commands, or explain how to allow a command."""
    commands = (*permissions.allowed_commands, *permissions.allowed_command_globs)
    if not commands:
        yield NO_COMMANDS
        return
    is_free = permissions.approval == "auto"
    told = "commands that run without asking" if is_free else "commands that may be asked for"
    yield f"{told}: {'; '.join(map(safe, commands))}"
    if permissions.allowed_command_globs:
        yield f"there {PATTERNS}"


def refusal_lines(args: Mapping[str, object], permissions: Permissions) -> Iterator[str]:
    """Return lines that say how to allow the command in `args`, and list allowed commands.

    If the command is allowed, nothing is returned, because the refusal had another reason. The
    first line does not contain the command if the command contains a secret, or contains ``*`` or
    ``?``, which are wildcards in a rule. `args` come from an event, in which each secret is already
    replaced by `MASK`.
    """
    exact, globs = permissions.allowed_commands, permissions.allowed_command_globs
    if has_secret := MASK in str(args):
        args = {name: _unmarked(value) for name, value in args.items()}
        exact = tuple(str(_unmarked(mask_secrets(rule))) for rule in exact)
    try:
        argv = argv_in(args)
    except (PerdureError, KeyError):
        return
    if is_allowed(argv, exact, globs):
        return
    line = canonical(argv)
    is_plain = line.isprintable() and len(line) <= _MAX_LINE and mask_secrets(line) == line
    if is_plain and not has_secret and not {"*", "?"} & {*line}:
        option = f"--allow-command {shlex.quote(line)}"
        yield f"not allowed: {line}; /allow {line} or {option} allows it"
    else:
        yield "the command is not allowed: /allow COMMAND or --allow-command allows one"
    yield from map(mask_secrets, command_lines(permissions))


def _unmarked(value: object) -> object:
    """Return `value` with the word "redacted" in place of each `MASK`.

    The brackets of `MASK` are shell syntax, so a command that contains `MASK` would be invalid.
    """
    if isinstance(value, list):
        return [_unmarked(each) for each in cast("list[object]", value)]
    return value.replace(MASK, "redacted") if isinstance(value, str) else value


def permissions_of(
    environment: Mapping[str, str], typed: TypedPermissions, configured: Configuration
) -> Permissions:
    """Return the permissions of a new chat: those that were `typed`, or else the `configured` ones.

    A command that contains ``*`` or ``?`` is a pattern.
    Raises: ConfigError.
    """
    endpoint: str | None = configured.value("tools.search_endpoint")
    is_secret = endpoint is not None and bool(environment.get(SEARCH_SECRET))
    return msgspec.structs.replace(
        commands_and_hosts(
            tuple(typed.commands or configured.value("chat.allowed_commands")),
            tuple(typed.domains or configured.value("chat.allowed_domains")),
        ),
        scope=typed.scope or configured.value("chat.fs_scope"),
        search_endpoint=endpoint,
        search_credential="{{secrets.SEARCH}}" if is_secret else None,
        is_search_local=endpoint is not None and endpoint.startswith("http://"),
        approval=typed.approve or configured.value("chat.approval"),
    )
