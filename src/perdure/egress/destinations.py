"""Parse the destination of a URL strictly: ambiguous URLs are rejected.

Pure. Requests are built from the parsed parts and never from the original text, so the destination
that was checked is the one that is used.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Literal
from urllib.parse import quote

from perdure.bounds.short_repr import ShortRepr
from perdure.egress.addresses import is_open
from perdure.errors import EgressDenied

MAX_URL = 8192

Scheme = Literal["https", "http"]

_PORTS: dict[str, int] = {"https": 443, "http": 80}
_url = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<target>[^#]*)")
_authority = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_label = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_numeric = re.compile(r"[0-9]+|0x[0-9a-f]*")
_KEPT = "/?:@!$&'()*+,;=%~-._[]"

_INSIDE = frozenset(
    ("localhost", "local", "internal", "intranet", "private", "corp", "home", "lan")
)
"""Top-level names that by convention belong to internal networks."""


class Destination(ShortRepr, frozen=True):
    """The destination of a request.

    Shape: `host` is lower-case ASCII without a final dot; an IPv6 address has no brackets. `target`
    starts with a slash and is ASCII.
    """

    scheme: Scheme
    host: str
    port: int
    target: str

    @property
    def is_ipv6(self) -> bool:
        """Return True if the host is an IPv6 address."""
        return ":" in self.host

    @property
    def url(self) -> str:
        """Return the normalized URL."""
        host = f"[{self.host}]" if self.is_ipv6 else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.target}"


def destination_of(url: str, *, is_local_open: bool = False) -> Destination:
    """Return the destination of `url`.

    `is_local_open` also allows plain ``http`` and hosts in the local network.
    Raises: EgressDenied with a message that contains no part of the URL.
    """
    if len(url) > MAX_URL:
        raise EgressDenied("the URL is too long")
    if any(ord(c) <= 0x20 or ord(c) == 0x7F or c == "\\" for c in url):
        raise EgressDenied("a URL holds no spaces, control characters or backslashes")
    found = _url.fullmatch(url.partition("#")[0])
    if found is None:
        raise EgressDenied("that is no absolute URL: write https://host/path")
    scheme = found["scheme"].lower()
    if scheme != "https" and not (scheme == "http" and is_local_open):
        raise EgressDenied("only https is allowed")
    host, port = _host_and_port(found["authority"], _PORTS[scheme])
    require_host(host, is_local_open=is_local_open)
    chosen: Scheme = "https" if scheme == "https" else "http"
    return Destination(chosen, host, port, _target(found["target"]))


def host_name(text: str) -> str:
    """Return the configured host `text`, normalized like the host of a `Destination`.

    Raises: EgressDenied if the text is not a host.
    """
    host, _ = _host_and_port(text, 0)
    return host


def require_host(host: str, *, is_local_open: bool = False) -> None:
    """Reject a host with an internal name, or with an address that is not allowed.

    Raises: EgressDenied.
    """
    literal = _literal(host)
    if literal is not None:
        if not is_open(literal, is_local_open=is_local_open):
            raise EgressDenied("the address is not on the public internet")
        return
    labels = host.split(".")
    if len(host) > 253 or not all(_label.fullmatch(label) for label in labels):
        raise EgressDenied("that is no host name; write international names in ASCII (xn--...)")
    if _numeric.fullmatch(labels[-1]):
        raise EgressDenied("an address is written as four decimal numbers")
    if not is_local_open and (len(labels) == 1 or labels[-1] in _INSIDE or host == "home.arpa"):
        raise EgressDenied("the host is inside a private network")
    if not is_local_open and host.endswith(".home.arpa"):
        raise EgressDenied("the host is inside a private network")


def _literal(host: str) -> str | None:
    """Return `host` as an IP address; None if it is a name."""
    try:
        return str(IPv6Address(host) if ":" in host else IPv4Address(host))
    except AddressValueError:
        if ":" in host:
            raise EgressDenied("that is no IPv6 address") from None
        return None


def _host_and_port(authority: str, default: int) -> tuple[str, int]:
    if "@" in authority:
        raise EgressDenied("a URL with a user name or password is not allowed")
    if not authority.isascii():
        raise EgressDenied("write international host names in ASCII (xn--...)")
    found = _authority.fullmatch(authority)
    if found is None:
        raise EgressDenied("the host of the URL cannot be read")
    port = int(found["port"]) if found["port"] else default
    if found["port"] and not 0 < port < 65536:
        raise EgressDenied("there is no such port")
    host = found["host"].lower()
    if host.startswith("["):
        if ":" not in host:
            raise EgressDenied("that is no IPv6 address")
        return str(_literal(host[1:-1])), port
    return host.removesuffix("."), port


def _target(text: str) -> str:
    """Return the path and query in ASCII, with percent-encoding where necessary."""
    target = text if text.startswith("/") else f"/{text}"
    return quote(target, safe=_KEPT)
