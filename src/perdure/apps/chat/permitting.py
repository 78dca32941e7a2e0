"""What the tools of a new chat may touch: as the command line and the environment say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from perdure.tools.permissions import ApprovalMode, Permissions, Scope

SEARCH_URL = "PERDURE_SEARCH_URL"
"""The environment variable that names the search engine for ``web_search``."""

SEARCH_SECRET = "PERDURE_SECRET_SEARCH"  # noqa: S105 - the name of a variable
"""The environment variable with the token for it, where it wants one."""

ApproveOption = Annotated[
    ApprovalMode | None,
    typer.Option(
        "--approve",
        metavar="MODE",
        help="What is asked before: ask, plan (change nothing), accept-edits, auto.",
    ),
]
CommandsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-command", metavar="LINE", help="A command it may run, e.g. 'pytest *'. Repeatable."
    ),
]
DomainsOption = Annotated[
    list[str] | None,
    typer.Option("--allow-domain", metavar="HOST", help="A host it may ask. Repeatable."),
]
ScopeOption = Annotated[
    Scope | None,
    typer.Option(
        "--scope", metavar="TIER", help="Where its file tools may go: sandboxed, project, full."
    ),
]


def permissions_of(
    environment: Mapping[str, str],
    approve: ApprovalMode | None = None,
    commands: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    scope: Scope | None = None,
) -> Permissions:
    """The permissions of a new chat. A command with ``*`` or ``?`` in it is a pattern.

    Raises: ConfigError.
    """
    lines = commands or ()
    patterns = tuple(line for line in lines if "*" in line or "?" in line)
    endpoint = environment.get(SEARCH_URL, "").strip() or None
    is_secret = endpoint is not None and bool(environment.get(SEARCH_SECRET))
    return Permissions(
        scope=scope or "project",
        allowed_commands=tuple(line for line in lines if line not in patterns),
        allowed_command_globs=patterns,
        allowed_domains=tuple(domains or ()),
        search_endpoint=endpoint,
        search_credential="{{secrets.SEARCH}}" if is_secret else None,
        is_search_local=endpoint is not None and endpoint.startswith("http://"),
        approval=approve or "ask",
    )
