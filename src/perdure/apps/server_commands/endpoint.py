"""The listening address of a server, its host names, and how its process ends."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.errors import ConfigError
from perdure.errors.advice import install_of

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


class Draining(Protocol):
    """An ASGI application that can be told to drain before its process ends."""

    def drain(self) -> None:
        """Answer ``/readyz`` with 503 from now on."""
        ...

    def stop(self) -> None:
        """End all connections and tasks that keep the process from ending."""
        ...


class Wanted(msgspec.Struct, frozen=True):
    """The listening address of a server, its host names, and its drain time. Units: seconds."""

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    is_proxied: bool = False
    drain_s: float = 0.0

    def check(self) -> None:
        """Raises: UsageMistake if the address needs TLS, or the certificate cannot be used."""
        if (self.certificate is None) != (self.key is None):
            raise UsageMistake("--tls-certificate and --tls-key belong together")
        if self.host not in LOOPBACK and self.certificate is None and not self.is_proxied:
            raise UsageMistake(
                f"listening on {self.host} needs TLS (--tls-certificate and --tls-key), or a "
                "proxy in front that adds it (--behind-proxy)"
            )
        if self.certificate is not None and self.key is not None:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            except OSError as error:
                raise UsageMistake(
                    f"cannot use --tls-certificate {self.certificate} with --tls-key {self.key}:"
                    f" {error.strerror or error}; both must be PEM files that belong together"
                ) from error

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names under which the server can be reached."""
        return self.names if self.host in LOOPBACK else (*self.names, self.host)

    def address(self, port: int) -> str:
        """Return the URL of the proxy if its name is known; otherwise, the URL of this server."""
        if self.is_proxied and self.names:
            return f"https://{self.names[0]}"
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{self.hosts[0] if self.hosts else '127.0.0.1'}:{port}"


class EndpointOptions(msgspec.Struct, frozen=True):
    """The options about the host names of a server and its encryption."""

    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A host name that clients use for the server."),
    ] = None
    behind_proxy: Annotated[
        bool,
        typer.Option(
            "--behind-proxy",
            help="Listen without TLS, because a proxy on this machine or network adds TLS.",
        ),
    ] = False
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate chain of the server.")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The private key of the certificate.")
    ] = None

    def wanted(self, host: str, port: int, drain_s: float = 0.0) -> Wanted:
        """Return the endpoint at `host` and `port` that the options describe."""
        return Wanted(
            host,
            port,
            tuple(self.host_name or ()),
            self.tls_certificate,
            self.tls_key,
            self.behind_proxy,
            drain_s,
        )


def server_module(name: str) -> Any:
    """Return a module that needs the extra "server".

    Raises: ConfigError if the extra "server" is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("uvicorn", "litestar"):
            raise
        raise ConfigError(f'the server needs the extra "server": {install_of("server")}') from error


async def run(application: Draining, wanted: Wanted, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM. Raises: ConfigError if the extra "server" is not installed."""
    server_process = server_module("perdure.apps.server_commands.server_process")
    config = server_process.config(
        app=application,
        log_level="warning",
        proxy_headers=wanted.is_proxied,
        ssl_certfile=wanted.certificate,
        ssl_keyfile=wanted.key,
        timeout_graceful_shutdown=2,
    )
    server = server_process.DrainingServer(config, application, wanted.drain_s)
    await server.serve(sockets=[listening])


@asynccontextmanager
async def listen(host: str, port: int) -> AsyncGenerator[socket.socket]:
    """Yield a socket that listens. Raises: UsageMistake if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageMistake(
            f"cannot listen on {host}:{port} ({error.strerror}); choose another with --port"
        ) from error
    with listening:
        # Accepted sockets inherit it: asyncio sets it too late, and an answer would wait for 45 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listening
