"""Options of flow commands, and the name of the person who makes a decision."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.options import named_path, only_text, stored_path

FlowArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The flow: its id or the beginning of it.")
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by", metavar="NAME", callback=only_text, help="The person who decides; default: you."
    ),
]
WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="DIR",
        parser=stored_path,
        help="The folder of the workspace on this machine.",
    ),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", callback=only_text, help="The project; default: the name of the folder."
    ),
]
FolderOption = Annotated[
    Path,
    typer.Option(
        "--workspace",
        metavar="DIR",
        parser=named_path,
        help="The folder in which the roles would work.",
    ),
]
RoleCommandsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-command",
        metavar="LINE",
        help="Limit roles to this command, e.g. 'pytest tests/*'; default: as "
        "configured, or any command.",
    ),
]
RoleDomainsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-domain",
        metavar="HOST",
        help="A host that roles can contact; default: as configured.",
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch", help="Redraw the graph when it changes; print lines without a terminal."
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option("--wait", help="Wait for answers and continue until the flow is completed."),
]


def person(by: str | None) -> str:
    """Return the name of the person who makes the decision."""
    return by or getpass.getuser()
