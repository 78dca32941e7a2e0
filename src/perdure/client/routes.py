"""Several databases as one store: a file maps each namespace to its database.

``routes:///FILE`` can be used like any other store address. Opening a namespace at a ``routes:``
address opens the namespace in its own database, so other modules do not handle routes.
``docs/guides/cluster.md`` shows an example of a routes file.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import msgspec

from perdure.bounds.files import read_named
from perdure.errors import ConfigError

SCHEME = "routes"

_PREFIX = f"{SCHEME}:///"
_DATABASES = ("postgres", "postgresql")


class _Database(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: str
    namespaces: tuple[str, ...] = ()


class _Routes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    databases: dict[str, _Database]
    default: str | None = None


def routed(address: str, namespace: str) -> str:
    """Return the address of the database of `namespace`, or `address` if it has no routes.

    Raises: ConfigError if the file is missing or invalid, or contains no database for `namespace`.
    """
    if not address.startswith(f"{SCHEME}:"):
        return address
    file = file_of(address)
    routes = _read(file)
    own: dict[str, str] = {}
    for name, database in routes.databases.items():
        if database.address.partition(":")[0] not in _DATABASES:
            raise ConfigError(f"{file}: databases.{name}: address must be postgresql://…")
        for each in database.namespaces:
            if own.setdefault(each, name) != name:
                raise ConfigError(
                    f"{file}: the namespace {each!r} is in two databases, {own[each]} and {name}"
                )
    if routes.default is not None and routes.default not in routes.databases:
        raise ConfigError(f"{file}: default: there is no database {routes.default!r}")
    found = own.get(namespace, routes.default)
    if found is None:
        raise ConfigError(
            f"{file}: the namespace {namespace!r} is in no database: add it to `namespaces` of "
            "one, or name a `default`"
        )
    return routes.databases[found].address


def one_database(address: str) -> str:
    """Return `address` if it is the address of one database.

    Raises: ConfigError if the address is a routes file, which can name several databases.
    """
    if address.startswith(f"{SCHEME}:"):
        raise ConfigError(f"{address} is several databases: name the address of one of them")
    return address


def file_of(address: str) -> Path:
    """Return the path of the routes file in the address.

    Raises: ConfigError if the address contains no path.
    """
    name = address.removeprefix(_PREFIX)
    if name == address or not Path(name).name:
        raise ConfigError(f"{address} names no file: use {_PREFIX}relative.toml")
    return Path(name)


def _read(file: Path) -> _Routes:
    toml: Any = importlib.import_module("tomllib")  # most stores need none
    try:
        return msgspec.convert(toml.loads(read_named(file).decode()), _Routes)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    except ValueError as error:  # invalid TOML, UTF-8 or fields; addresses are in none of them
        raise ConfigError(f"{file}: {error}") from error
