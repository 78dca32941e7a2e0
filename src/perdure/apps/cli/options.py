"""What all commands have in common: their options, their loop, and how sessions are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer


def only_text(words: str | None) -> str | None:
    """`words` as they are; for an option or argument that goes into the log.

    Raises: typer.BadParameter when they are not UTF-8.
    """
    try:
        (words or "").encode()
    except UnicodeEncodeError:
        hint = "it is not UTF-8, and a log holds nothing else; convert it and try again"
        raise typer.BadParameter(hint) from None
    return words


StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="ADDRESS", help="sqlite:///FILE or memory:"),
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", metavar="NAME", help="The project the sessions belong to.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ModelOption = Annotated[
    str | None,
    typer.Option("-m", "--model", metavar="MODEL", help="provider:name, e.g. scripted:echo."),
]
SessionArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The session: its id, or how it begins.")
]
EntryArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENTRY",
        help="The entry: its number, its id, or how that begins; also a foreign id.",
    ),
]

ROOT = "root"
"""What stands for the place before the first entry."""


def run(work: Callable[[], Coroutine[Any, Any, int | None]]) -> int:
    """Perform `work` in a loop of its own; its exit code, 0 for None."""
    return asyncio.run(work()) or 0
