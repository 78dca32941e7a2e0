"""Find the files and folders that belong to a store address, and the default address."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from perdure.errors import ConfigError

FILE_ADDRESS = "sqlite:///"
FOLDER_ADDRESS = "jsonl:///"
_SPECIAL = re.compile("[%?#]")
"""Characters in a folder's path that have a special meaning in an address."""

_BESIDE = ("", "-wal", "-shm", "-journal")
"""An SQLite store appends these endings to the name of its database file to name its files."""


def database_file(address: str) -> Path | None:
    """Return the file of a store address; None if the store is not in a single file."""
    if not address.startswith(FILE_ADDRESS):
        return None
    return Path(address.removeprefix(FILE_ADDRESS))  # it has no options: a ? belongs to the name


def own_folders(address: str) -> tuple[Path, ...]:
    """Return the folders in which the store at `address` writes session files."""
    if not address.startswith(FOLDER_ADDRESS):
        return ()
    name = _folder_name(address)
    return (Path(name).absolute(),) if name else ()


def _folder_name(address: str) -> str:
    return unquote(address.removeprefix(FOLDER_ADDRESS).partition("?")[0])


def intended_address(typed: str) -> str | None:
    """Return the address meant by `typed`, for example a path, ``sqlite:x.db`` or ``file:///x.db``.

    The result is None if `typed` looks neither like a path nor like the address of a file.
    """
    scheme, colon, name = typed.partition(":")
    if not colon:
        name = typed
    elif scheme not in ("sqlite", "file"):
        return None
    elif name.startswith("//"):
        name = name[2:]  # file:///x.db is /x.db; sqlite://x.db is x.db
    if not name.strip("/"):
        return None
    path = Path(os.path.expanduser(name))  # noqa: PTH111 - Path.expanduser raises for ~nobody
    if os.path.isdir(path):  # noqa: PTH112 - a name that is too long is none
        return f"{FOLDER_ADDRESS}{_SPECIAL.sub(lambda found: quote(found[0]), str(path))}"
    return f"{FILE_ADDRESS}{path}"


def near_address(address: str) -> str | None:
    """Return the address of an existing store that is probably meant by the wrong `address`.

    For example, ``sqlite:///tmp/x.db`` (a relative path) probably means ``sqlite:////tmp/x.db`` (an
    absolute path). Returns None if no store exists at the probable address.
    """
    if address.startswith(FOLDER_ADDRESS):
        name = _folder_name(address)
        is_near = bool(name) and name[0] not in "/~" and os.path.isdir(f"/{name}")  # noqa: PTH112 - a name that is too long is none
        return f"{FOLDER_ADDRESS}/{address.removeprefix(FOLDER_ADDRESS)}" if is_near else None
    file = database_file(address)
    if file is None or file.is_absolute():
        return None
    for path in (Path("/") / file, Path(os.path.expanduser(file))):  # noqa: PTH111 - as above
        if path != file and os.path.isfile(path):  # noqa: PTH113 - as above
            return f"{FILE_ADDRESS}{path}"
    return None


def is_part_of(place: Path, address: str) -> bool:
    """Whether the file `place` is, or belongs to, the store at `address`."""
    file, place = database_file(address), place.absolute().resolve()
    own = [] if file is None else [file.with_name(file.name + end) for end in _BESIDE]
    if place in [each.absolute().resolve() for each in own]:
        return True
    return any(
        place.is_relative_to(folder.resolve())
        and (place.suffix == ".jsonl" or ".perdure" in place.parts)
        for folder in own_folders(address)
    )


def environment_address(environment: Mapping[str, str]) -> str | None:
    """Return the store address in ``$PERDURE_STORE``; None if the variable is not set.

    Raises: ConfigError if ``$PERDURE_STORE`` is empty.

    An empty variable does not select the default store, because it was probably set from another
    variable that does not exist.
    """
    named = environment.get("PERDURE_STORE")
    if named == "":
        raise ConfigError("PERDURE_STORE is empty: set it to the address of a store, or unset it")
    return named


def default_address(environment: Mapping[str, str], platform: str) -> str:
    """Return ``$PERDURE_STORE``, or else the address of a file in the user data directory.

    `platform` is ``sys.platform``.
    Raises: ConfigError if there is no home folder, or if ``$PERDURE_STORE`` is empty.
    """
    named = environment_address(environment)
    if named is not None:
        return named
    return f"sqlite:///{data_folder(environment, platform) / 'perdure' / 'perdure.db'}"


def address_or_default(address: str | None, environment: Mapping[str, str], platform: str) -> str:
    """Return `address`, or the default address if `address` is None.

    Raises: ConfigError if `address` is empty, and the errors of `default_address`.
    """
    if address == "":
        raise ConfigError("the address of the store is empty: write one, such as sqlite:///my.db")
    return default_address(environment, platform) if address is None else address


def data_folder(environment: Mapping[str, str], platform: str) -> Path:
    """Return the user data directory. Raises: ConfigError if there is no home folder."""
    chosen = environment.get("LOCALAPPDATA" if platform == "win32" else "XDG_DATA_HOME")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen)
    home = environment.get("USERPROFILE" if platform == "win32" else "HOME")
    if not home:
        raise ConfigError("no store is configured, and there is no home folder: set PERDURE_STORE")
    if platform == "win32":
        return Path(home, "AppData", "Local")
    if platform == "darwin":
        return Path(home, "Library", "Application Support")
    return Path(home, ".local", "share")
