"""Shared parts of commands: options, the event loop, and how sessions are displayed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import PathNotFound, UsageMistake
from perdure.apps.settings.lookup import setting
from perdure.apps.terminal.text import safe
from perdure.errors import WrongArgument
from perdure.models.catalogue import require_model_name


def only_text(words: str | None) -> str | None:
    """Check an option or argument that is stored in the log, and return it unchanged.

    Raises: typer.BadParameter if `words` is not valid UTF-8.
    """
    try:
        (words or "").encode()
    except UnicodeEncodeError:
        hint = "it is not UTF-8, and a log holds nothing else; convert it and try again"
        raise typer.BadParameter(hint) from None
    return words


def only_subject(words: str | None) -> str | None:
    """Check an option that names a subject, and return it unchanged.

    Raises: typer.BadParameter if `words` is blank or not valid UTF-8.
    """
    if words is not None and not words.strip():
        raise typer.BadParameter(
            "it is empty; name the person or thing that the sessions are about"
        )
    return only_text(words)


EmbedderOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        callback=only_text,
        help="Also compare by meaning: static:FOLDER, minilm:FOLDER, or PROVIDER:MODEL.",
    ),
]


def named_path(typed: str | Path) -> Path:
    """Return the path of an option; "" is rejected, although `Path("")` is the current folder.

    Raises: typer.BadParameter when the path is empty, for example from an unset variable.
    """
    if typed == "":
        raise typer.BadParameter("an empty path names nothing; name a file or a folder")
    return Path(typed)


def stored_path(typed: str | Path) -> Path:
    """Return a path that is stored in the log, after the same check as in `named_path`.

    Raises: typer.BadParameter if the path is empty or not valid UTF-8.
    """
    only_text(str(typed))
    return named_path(typed)


def model_name(named: str | None) -> str | None:
    """Check an option that names a model, and return it unchanged.

    Raises: typer.BadParameter if `named` has no known provider.
    """
    try:
        if named is not None:
            require_model_name(named)
    except WrongArgument as error:
        raise typer.BadParameter(str(error)) from None
    return named


def model_names(named: list[str] | None) -> list[str] | None:
    """Check an option that names several models, in the same way as `model_name`."""
    for each in named or ():
        model_name(each)
    return named


def namespace_of(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """Return the namespace of the command.

    The order of priority is: the typed namespace, $PERDURE_NAMESPACE, the settings, the default
    `value`.
    Raises: ConfigError when the settings cannot be read.
    """
    source = context.get_parameter_source(parameter.name or "")
    if source is not None and source.name != "DEFAULT":
        return value
    return setting("store.namespace") or value


StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The store: sqlite:///FILE, jsonl:///FOLDER, postgresql://USER@HOST/DATABASE or "
        "memory:; default: $PERDURE_STORE, or as configured, or a file in your data folder.",
    ),
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        envvar="PERDURE_NAMESPACE",
        callback=namespace_of,
        show_default="the namespace of the project, or default",
        help="The namespace of the store to use; `perdure init` gives each project its own "
        "namespace.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        metavar="MODEL",
        callback=model_name,
        help="The model, as provider:name; scripted:echo works offline.",
    ),
]
FolderFilter = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Include only sessions of this folder: its path, or the end of its path in lists.",
    ),
]
SourceFilter = Annotated[
    str | None,
    typer.Option(
        metavar="PROGRAM",
        help="Only sessions imported from this program, such as claude-code; perdure: only "
        "sessions that no other program wrote.",
    ),
]
ScenarioOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", parser=stored_path, help="Use the scripted model with this scenario."
    ),
]
SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The session: its id, the beginning of its id, or the file it was imported from.",
    ),
]
WithoutServersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without-mcp",
        metavar="NAME",
        help="Leave out this MCP server and its tools. A session that starts without the server "
        "never gets the server's tools.",
    ),
]
EntryArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENTRY",
        help="The entry: number, id, beginning of the id, label, or foreign id.",
    ),
]

MOST = 1_000_000_000
"""The greatest number that a command accepts; a greater one is probably a typing mistake."""

ROOT = "root"
"""The word that users type for the position before the first entry."""


def named_values(words: Iterable[str], option: str) -> dict[str, str]:
    """Return the values of ``NAME=VALUE`` arguments, keyed by name.

    Raises: UsageMistake.
    """
    found: dict[str, str] = {}
    for each in words:
        name, equals, value = each.partition("=")
        if not equals or not name:
            lacks = "name" if equals else "value"
            raise UsageMistake(f"{option} {each!r} has no {lacks}: write {option} NAME=VALUE")
        if name in found:
            raise UsageMistake(f"{option} {name} is there twice: give it once")
        found[name] = value
    return found


def require_file(path: Path, wanted: str) -> None:
    """Check that `path` is a file; `wanted` names the wanted file in the error message.

    Raises: PathNotFound if `path` does not exist; UsageMistake if `path` is not a file.
    """
    if not path.exists():
        raise PathNotFound(str(path))
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "not a file"
        raise UsageMistake(f"{path} is {kind}: name {wanted}")


def require_folder(path: Path, wanted: str) -> None:
    """Check that `path` is a folder; `wanted` names the wanted folder in the error message.

    Raises: PathNotFound if `path` does not exist; UsageMistake if `path` is not a folder.
    """
    if not path.exists():
        raise PathNotFound(str(path))
    if not path.is_dir():
        kind = "a file" if path.is_file() else "not a folder"
        raise UsageMistake(f"{path} is {kind}: name {wanted}")


YesOption = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Delete without asking for confirmation; a deletion cannot be undone."
    ),
]


def confirm_erasure(what: str, *, is_sure: bool) -> None:
    """Ask the person to confirm that `what` will be erased; if `is_sure`, do not ask.

    Raises: UsageMistake if the person declines, or if nobody can be asked.
    """
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise UsageMistake("erasing cannot be undone: add --yes to confirm")
    if not typer.confirm(f"Erase {safe(what)} for good?", err=True):
        raise UsageMistake("nothing was erased")
