"""Find the files of perdure and of the programs from which it imports, to close them to tools.

The rules on file names in `floors` already close the usual places of the files of these programs.
Environment variables and settings can move a program's files to other places, which this module
closes as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from perdure.tools.paths.floors import Floors, Names, folded_name

_FOLDERS = (
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "OPENCODE_CONFIG_DIR"),
    *("GNUPGHOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
    *("OPENCODE_CONFIG", "PERDURE_KEY_FILE", "DOCKER_CONFIG", "CLOUDSDK_CONFIG", "GH_CONFIG_DIR"),
)
"""Environment variables that name a file or folder with credentials or configuration."""

_LISTS = ("KUBECONFIG",)
"""Environment variables that list several such files or folders, in the form of PATH."""

_BASES = {
    "XDG_CONFIG_HOME": ("perdure", "opencode", "operator"),
    "XDG_DATA_HOME": ("perdure", "opencode", "operator", "keyrings"),
    "XDG_STATE_HOME": ("perdure",),
    "XDG_CACHE_HOME": ("perdure",),
    "LOCALAPPDATA": ("perdure",),
}
"""Maps environment variables to the closed folders inside the folder that the variable names."""

_STORE = "PERDURE_STORE"
_HOME = "HOME"
_KNOWN = (*_FOLDERS, *_LISTS, *_BASES, _STORE, _HOME)


def floors_of(
    environment: Mapping[str, str], closed: tuple[str, ...] = (), record: Path | None = None
) -> Floors:
    """Return the places that tools cannot access: `closed`, and those that `environment` names.

    `record` is the record folder of the flow that the call works for.
    """
    given = tuple((name, environment[name]) for name in _KNOWN if environment.get(name))
    return _floors(given, closed, None if record is None else str(record))


def names_of_place(place: str | Path) -> Names:
    """Return the folded names of `place` from the root down, with links resolved."""
    parts = Path(os.path.realpath(place)).parts
    return tuple(folded_name(name) for name in parts if name != os.sep)


def places_of_store(address: str) -> tuple[str, ...]:
    """Return the files and folders of the store at `address`; empty if the store has no files."""
    place = place_of_store(address)
    return () if place is None else (os.path.realpath(place),)


def place_of_store(address: str) -> str | None:
    """Return the file or folder in a store's `address`; None if the store has no files."""
    scheme, colon, rest = address.partition("://")
    if not colon:
        return None
    if scheme not in ("sqlite", "jsonl", "routes"):
        return None
    path = rest.partition("?")[0].removeprefix("/")
    return (unquote(path) if scheme == "jsonl" else path) or None


@lru_cache(maxsize=64)
def _floors(
    given: tuple[tuple[str, str], ...], closed: tuple[str, ...], record: str | None
) -> Floors:
    variables = dict(given)
    home = names_of_place(variables.get(_HOME, os.sep))
    store = place_of_store(variables.get(_STORE, ""))
    stems = closed if store is None else (*closed, store)
    return Floors(
        _below(home, _environment_folders(given)),
        _below(home, stems),
        None if record is None else names_of_place(record),
    )


def _below(home: Names, places: Iterable[str]) -> frozenset[Names]:
    """Return the folded names of those `places` that do not contain the home folder `home`."""
    found = map(names_of_place, places)
    return frozenset(place for place in found if place and place != home[: len(place)])


def _environment_folders(given: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, value in given:
        if name in _FOLDERS:
            yield value
        elif name in _LISTS:
            yield from filter(None, value.split(os.pathsep))
        for below in _BASES.get(name, ()):
            yield str(Path(value) / below)
