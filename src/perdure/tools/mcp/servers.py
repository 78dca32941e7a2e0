"""The configuration of an MCP server: how to start or reach it, and which tools to use.

This module is pure. The configuration refers to secrets by name, as ``{{secrets.NAME}}``; secrets
in plain text are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from perdure.bounds.short_repr import short_repr
from perdure.egress.destinations import Destination, destination_of
from perdure.errors import ConfigError, EgressDenied, SecretPasted
from perdure.secrets.pasted_keys import apply_paste_policy
from perdure.secrets.references import names_in
from perdure.secrets.shapes import is_secret_field
from perdure.session.argument_checks import NamedParameters, check_fields
from perdure.session.ledger import UnknownPolicy

CONNECT_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 86_400
"""One day, the maximum of all timeouts."""

TimeoutS = Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
"""Regular expression that the whole name of a server must match."""

_header = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class McpServer(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, metaclass=NamedParameters
):
    """A server that provides tools to an agent. The server's tools are named ``mcp_{name}_{tool}``.

    The server is either a program or an endpoint. For a program, perdure starts `command` with
    `args` in `working_dir` (default: the session's working directory). The program's environment is
    the minimal environment and `env`. perdure communicates over the program's standard input and
    output. For an endpoint, `url` is a streamable HTTP address, to which perdure sends `headers`.
    The values of `env` and `headers` can refer to secrets. A `url` must be https and public unless
    `allow_local_endpoint` is True. `tools_allowlist` lists the server's tools to use; None means
    all tools. If `trusts_annotations` is True, perdure trusts the server's claim that a tool only
    reads, and runs this tool without approval. `on_unknown` is the policy for interrupted calls;
    None means the default for tools of this kind.
    Units: timeouts are in seconds, at most a day. `connect_timeout_s` limits the time from the
    start of connecting until the server is ready.
    Raises: ConfigError if a value cannot work or is unsafe. Raises WrongArgument if a value has the
    wrong type.
    """

    __repr__ = short_repr

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    working_dir: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    allow_local_endpoint: bool = False
    tools_allowlist: tuple[str, ...] | None = None
    trusts_annotations: bool = False
    on_unknown: UnknownPolicy | None = None
    connect_timeout_s: TimeoutS = CONNECT_TIMEOUT_S
    timeout_s: TimeoutS = CALL_TIMEOUT_S

    def __post_init__(self) -> None:
        check_fields(self)
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r:.80} cannot name an MCP server: use 1 to 32 letters, digits, _ or -",
                argument="name",
            )
        if (self.command is None) == (self.url is None):
            raise self._refused("give it either a command or a url")
        if self.tools_allowlist is not None and not self.tools_allowlist:
            reason = "tools_allowlist is empty; leave it out, or leave out the server"
            raise self._refused(reason, "tools_allowlist")
        if self.command is not None:
            self._require_program(self.command)
        else:
            self._require_endpoint()

    @property
    def is_remote(self) -> bool:
        """Return True if the server has a URL instead of a program to start."""
        return self.url is not None

    @property
    def prefix(self) -> str:
        """Return the prefix of the names of the server's tools."""
        return f"mcp_{self.name}_"

    @property
    def destination(self) -> Destination:
        """Return the destination of the server's `url`.

        Raises: EgressDenied if the `url` is invalid or not allowed.
        """
        return destination_of(self.url or "", is_local_open=self.allow_local_endpoint)

    def _require_program(self, command: str) -> None:
        if self.headers or self.allow_local_endpoint:
            place = "headers" if self.headers else "allow_local_endpoint"
            raise self._refused("headers and allow_local_endpoint are for a url", place)
        if not command.strip() or any("\0" in word for word in (command, *self.args)):
            raise self._refused("its command is empty or holds a NUL", "command")
        if self.working_dir is not None and (
            not self.working_dir.strip() or "\0" in self.working_dir
        ):
            raise self._refused("its working_dir is no folder; leave it out", "working_dir")
        for number, word in enumerate(self.args, 1):
            place = f"argument {number} of the MCP server {self.name!r}"
            _refuse_pasted(word, place, "args")
        for name, value in self.env.items():
            if not _variable.fullmatch(name) or "\0" in value:
                raise self._refused(f"{name!r:.80} is no environment variable", "env")
        self._require_references("variable", self.env)

    def _require_endpoint(self) -> None:
        if self.args or self.env or self.working_dir is not None:
            place = "args" if self.args else "env" if self.env else "working_dir"
            raise self._refused("args, env and working_dir are for a command", place)
        _refuse_pasted(self.url or "", f"the url of the MCP server {self.name!r}", "url")
        try:
            place = self.destination
            if place.scheme == "http" and _is_public(place):
                raise EgressDenied("only https is allowed beyond the own network")
        except EgressDenied as error:
            hint = "" if self.allow_local_endpoint else "; allow_local_endpoint opens the own net"
            raise self._refused(f"its url cannot be used: {error.reason}{hint}", "url") from None
        for name, value in self.headers.items():
            if not _header.fullmatch(name) or not value.isprintable() or not value.isascii():
                reason = f"{name!r:.80} is no header, or its value holds more than printable ASCII"
                raise self._refused(reason, "headers")
        self._require_references("header", self.headers)

    def _require_references(self, what: str, values: Mapping[str, str]) -> None:
        setting = "headers" if what == "header" else "env"
        for name, value in values.items():
            place = f"the {what} {name} of the MCP server {self.name!r}"
            _refuse_pasted(value, place, setting)
            # By its name, too: a short password looks like any word.
            if is_secret_field(name, value) and not names_in(value):
                raise ConfigError(
                    f"{place} refers to a secret: write {{{{secrets.NAME}}}}",
                    argument=setting,
                )

    def _refused(self, reason: str, setting: str | None = None) -> ConfigError:
        return ConfigError(f"the MCP server {self.name!r}: {reason}", argument=setting)


def _refuse_pasted(text: str, place: str, setting: str) -> None:
    try:
        apply_paste_policy(text, "refuse", place)
    except SecretPasted as error:
        error.argument = setting
        raise


def _is_public(place: Destination) -> bool:
    """Return True if the host of `place` is not known to be in the local network."""
    secure = msgspec.structs.replace(place, scheme="https", port=443)
    try:
        destination_of(secure.url)
    except EgressDenied:
        return False
    return True
