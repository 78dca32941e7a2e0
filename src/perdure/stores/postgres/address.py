"""Parse an address into the routes to a server: direct, through a pooler, and to its replica.

A pooler (such as PgBouncer) in transaction mode can give each transaction a different connection to
the server. Behind a pooler in transaction mode, no setting lasts longer than a transaction, and
locks and notifications need a direct connection.
"""

from __future__ import annotations

import os
import socket
from typing import Any, NamedTuple
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.errors import ConfigError

DIRECT = "direct"
"""The option of an address that names the server behind a pooler."""

REPLICA = "replica"
"""The option of an address that names a streaming replica, for lists and search."""

_SERVERS = {DIRECT: "the server behind the pooler", REPLICA: "the replica"}
"""The options of an address that name a server, and the server that each option names."""

# A server that disappears silently is noticed within half a minute.
_DEFAULTS = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}


class Route(NamedTuple):
    """libpq connection strings.

    `pooled` is the address for transactions. `direct` is the address for everything except
    transactions.

    `replica` is the address of a streaming replica for lists and search; None without a replica.
    """

    pooled: str
    direct: str
    replica: str | None = None

    @property
    def has_pooler(self) -> bool:
        """Whether transactions go through a pooler."""
        return self.pooled != self.direct


def route_of(address: str) -> Route:
    """Return the ways to connect to the server that `address` names.

    ``?direct=HOST:PORT`` names the server if the address belongs to a pooler, and
    ``?replica=HOST:PORT`` names a streaming replica of the server.
    Raises: ConfigError for an invalid address.
    """
    plain, own = _split(address)
    try:
        chosen = conninfo_to_dict(plain)
        name = f"perdure (process {os.getpid()} on {socket.gethostname()})"[:63]
        defaults = {"application_name": name, **_DEFAULTS}
        defaults = {name: value for name, value in defaults.items() if name not in chosen}
        pooled = make_conninfo(plain, client_encoding="UTF8", **defaults)
        direct = _moved(pooled, DIRECT, own[DIRECT]) if DIRECT in own else pooled
        replica = _moved(pooled, REPLICA, own[REPLICA]) if REPLICA in own else None
        return Route(pooled, direct, replica)
    except psycopg.Error as error:
        raise ConfigError(
            "this is no address of a PostgreSQL database: use postgresql://USER@HOST/DATABASE"
        ) from error


def _moved(conninfo: str, option: str, server: str) -> str:
    """Return `conninfo` with the host and port of `server`, which is the value of `option`."""
    moved = {**conninfo_to_dict(conninfo), **_place(option, server)}
    for name in ("hostaddr", "target_session_attrs"):  # of the other server
        moved.pop(name, None)
    return make_conninfo("", **moved)


def public_address(conninfo: str) -> str:
    """Return the address without its password, for errors and lists."""
    told: dict[str, Any] = conninfo_to_dict(conninfo)
    user = f"{told['user']}@" if told.get("user") else ""
    host = str(told.get("host", ""))
    is_folder = host.startswith("/")
    place = "" if is_folder else host
    if told.get("port") and not is_folder:
        place += f":{told['port']}"
    where = f"?host={host}" if is_folder else ""
    return f"postgresql://{user}{place}/{told.get('dbname', '')}{where}"


def _split(address: str) -> tuple[str, dict[str, str]]:
    """Split `address` into an address for libpq and perdure's own options with decoded values.

    The rest of the address remains unchanged; errors contain no part of it, because any part may be
    a password.
    """
    before, mark, query = address.rpartition("?")
    own: dict[str, str] = {}
    others: list[str] = []
    for option in query.split("&") if mark else []:
        name, _, value = option.partition("=")
        if name not in _SERVERS:
            others.append(option)
        elif name in own or not value:
            raise ConfigError(f"name {_SERVERS[name]} once: ?{name}=HOST:PORT")
        else:
            own[name] = unquote(value)
    if not own:
        return address, own
    return before + (f"?{'&'.join(others)}" if others else ""), own


def _place(option: str, server: str) -> dict[str, str]:
    """Return the host (or folder of sockets) and the port in `server`; the default is 5432."""
    host, _, port = server.rpartition(":")
    if not host or server.endswith("]"):
        host, port = server, "5432"
    if not port.isdigit() or (":" in host and not host.startswith("[")):
        raise ConfigError(f"{server!r:.60} is no server: use ?{option}=HOST:PORT, or [IPv6]:PORT")
    return {"host": host.strip("[]"), "port": port}
