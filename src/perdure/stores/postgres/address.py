"""How connections reach a server: directly, or through a pooler such as PgBouncer.

A pooler in transaction mode gives each transaction any connection to the server. Nothing may be set
for longer than a transaction then, and locks and notifications need a direct connection.
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

# A server that disappears silently is noticed within half a minute.
_DEFAULTS = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}


class Route(NamedTuple):
    """libpq connection strings. `pooled`: of transactions; `direct`: of everything else."""

    pooled: str
    direct: str

    @property
    def has_pooler(self) -> bool:
        """Whether transactions go through a pooler."""
        return self.pooled != self.direct


def route_of(address: str) -> Route:
    """Return the route of a ``postgresql:`` or ``postgres:`` address.

    ``?direct=HOST:PORT`` names the server, where the address is that of a pooler.
    Raises: ConfigError for another address.
    """
    plain, direct = _split(address)
    try:
        chosen = conninfo_to_dict(plain)
        name = f"perdure (process {os.getpid()} on {socket.gethostname()})"[:63]
        defaults = {"application_name": name, **_DEFAULTS}
        defaults = {name: value for name, value in defaults.items() if name not in chosen}
        pooled = make_conninfo(plain, client_encoding="UTF8", **defaults)
        if direct is None:
            return Route(pooled, pooled)
        server = {**conninfo_to_dict(pooled), **_place(direct)}
        server.pop("hostaddr", None)  # of the pooler
        return Route(pooled, make_conninfo("", **server))
    except psycopg.Error as error:
        raise ConfigError(
            "this is no address of a PostgreSQL database: use postgresql://USER@HOST/DATABASE"
        ) from error


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


def _split(address: str) -> tuple[str, str | None]:
    """Return `address` without its option ``direct``, which is unquoted, and that option.

    The rest of the address is not touched, and no part of it is in an error: it may be a password.
    """
    before, mark, query = address.rpartition("?")
    options = query.split("&") if mark else []
    found = [each.partition("=")[2] for each in options if each.partition("=")[0] == DIRECT]
    if not found:
        return address, None
    if len(found) > 1 or not found[0]:
        raise ConfigError("name the server behind the pooler once: ?direct=HOST:PORT")
    others = "&".join(each for each in options if each.partition("=")[0] != DIRECT)
    return before + (f"?{others}" if others else ""), unquote(found[0])


def _place(direct: str) -> dict[str, str]:
    """Return the host, or folder of sockets, and the port in `direct`; 5432 if it has none."""
    host, _, port = direct.rpartition(":")
    if not host or direct.endswith("]"):
        host, port = direct, "5432"
    if not port.isdigit() or (":" in host and not host.startswith("[")):
        raise ConfigError(f"{direct!r:.60} is no server: use ?direct=HOST:PORT, or [IPv6]:PORT")
    return {"host": host.strip("[]"), "port": port}
