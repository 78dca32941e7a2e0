"""``perdure config``: shows each setting, its source, and the values that it overrides."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from perdure.apps.cli.options import JsonOption
from perdure.apps.settings.document import BUILT_IN
from perdure.apps.settings.layers import Configuration, Explained, Said
from perdure.apps.settings.lookup import agent_folders
from perdure.apps.terminal.output import out_style, show_result
from perdure.apps.terminal.text import safe
from perdure.models.prices import in_dollars
from perdure.secrets.mask import mask_secrets

config = typer.Typer(no_args_is_help=True)

KeyArgument = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="The setting, such as chat.model; default: all."),
]


@config.callback()
def config_itself() -> None:
    """Show the effective settings, and where they come from.

    Settings are read from your settings file, from the project's file and from the environment;
    options on the command line override all of them. A project's file can only set a namespace and
    restrict your permissions. To change a setting, edit your settings file: `perdure config path`
    shows its path.

    Examples:
        perdure config explain
        perdure config explain chat.fs_scope
        perdure config path
    """


@config.command("explain")
def explain(key: KeyArgument = None, *, as_json: JsonOption = False) -> None:
    """Show the value of each setting, its file and line, and the values that it overrides.

    Examples:
        perdure config explain
        perdure config explain chat.model --json

    Exit codes:
        2  unknown setting, or a file with unknown keys
    """
    configuration = Configuration(Path(), os.environ)
    keys = list(BUILT_IN) if key is None else [key]
    explained = [configuration.explain(each) for each in keys]
    show_result([_data(each) for each in explained], _lines(explained), as_json=as_json)


@config.command("path")
def path(*, as_json: JsonOption = False) -> None:
    """Show the paths of settings and agent files, including files that do not exist.

    Examples:
        perdure config path
        perdure config path --json
    """
    configuration = Configuration(Path(), os.environ)
    files = [("user", configuration.person_file)]
    if configuration.project_file is not None:
        files.append(("project", configuration.project_file))
    files.extend((f"{place} agents", f) for place, f in agent_folders(Path(), os.environ).items())
    data = [{"source": s, "path": str(f), "exists": f.exists()} for s, f in files]
    widest = max(len(source) for source, _ in files)
    lines = (
        f"{source.ljust(widest)}  {safe(str(f))}{'' if f.exists() else '  (not there)'}"
        for source, f in files
    )
    show_result(data, lines, as_json=as_json)


def _data(explained: Explained) -> dict[str, object]:
    said = explained.said
    return {
        "key": explained.key,
        "value": _plain(said.value),
        "source": said.source,
        "where": said.where,
        "overrides": [
            {
                "value": _plain(other.value),
                "source": other.source,
                "where": other.where,
                **({} if other.note is None else {"note": other.note}),
            }
            for other in explained.overrides
        ],
    }


def _plain(value: object) -> object:
    return mask_secrets(value) if isinstance(value, str) else msgspec.to_builtins(value)


def _lines(explained: list[Explained]) -> Iterator[str]:
    style = out_style()
    widest = max(len(each.key) for each in explained)
    for each in explained:
        key = style.paint(each.key.ljust(widest), "strong")
        value = _shown_value(each.key, each.said)
        yield f"{key}  {value}  {style.paint(_from(each.said), 'faint')}"
        for other in each.overrides:
            why = "not taken" if other.note else "goes before"
            note = f" ({other.note})" if other.note else ""
            told = f"{why} {_shown_value(each.key, other)}  {_from(other)}{note}"
            yield f"{' ' * widest}    {style.paint(told, 'faint')}"


def _shown_value(key: str, said: Said) -> str:
    if said.value is None:
        return "none"
    if key.endswith("_microcents") and isinstance(said.value, int) and said.value:
        return f"{said.value} ({in_dollars(said.value)})"
    plain = _plain(said.value)
    text = plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
    return safe(text)


def _from(said: Said) -> str:
    return f"[{said.source}{'' if said.where is None else f' {safe(said.where)}'}]"
