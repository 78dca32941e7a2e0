"""What is configured of an MCP server: how it is started or reached, and what of it is used.

Pure. Secrets stand here by name, as ``{{secrets.NAME}}``; a pasted one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from perdure.egress.destinations import Destination, destination_of
from perdure.errors import ConfigError, EgressDenied
from perdure.secrets.pasted import pasted
from perdure.secrets.references import names_in
from perdure.secrets.shapes import is_secret_name, is_secret_value
from perdure.session.declared.arguments import check_fields
from perdure.session.ledger import UnknownPolicy

CONNECT_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 120.0

_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server whose tools an agent has, named ``mcp_{name}_{tool}``.

    Either `command` is a program that is started with `args` in `working_dir` (default: the
    session's) and spoken to over its standard input and output, with `env` besides the minimal
    environment; or `url` is where one listens for streamable HTTP, which is sent `headers`. The
    values of `env` and `headers` may refer to secrets. A `url` is https and public, unless
    `allow_local_endpoint`. `tools_allowlist` names the server's tools that are used, None: all.
    `trusts_annotations` believes it which of its tools only read: those run without approval.
    `on_unknown` says what is done about a call that was cut off; None: as for tools of its kind.
    Units: seconds, `connect_timeout_s` from the start until it is ready.
    Raises: ConfigError for what can never work or would be unsafe.
    """

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
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    timeout_s: float = CALL_TIMEOUT_S

    def __post_init__(self) -> None:
        check_fields(self)
        if not _name.fullmatch(self.name):
            raise ConfigError(
                f"{self.name!r} cannot name an MCP server: use 1 to 32 letters, digits, _ or -"
            )
        if (self.command is None) == (self.url is None):
            raise self._refused("give it either a command or a url")
        if self.tools_allowlist is not None and not self.tools_allowlist:
            raise self._refused("tools_allowlist is empty; leave it out, or leave out the server")
        if self.connect_timeout_s <= 0 or self.timeout_s <= 0:
            raise self._refused("its timeouts are greater than 0")
        if self.command is not None:
            self._require_program(self.command)
        else:
            self._require_endpoint()

    @property
    def is_remote(self) -> bool:
        """Whether it is reached by URL rather than started here."""
        return self.url is not None

    @property
    def prefix(self) -> str:
        """What the names of its tools begin with."""
        return f"mcp_{self.name}_"

    @property
    def destination(self) -> Destination:
        """Where its `url` leads.

        Raises: EgressDenied.
        """
        return destination_of(self.url or "", is_local_open=self.allow_local_endpoint)

    def _require_program(self, command: str) -> None:
        if self.headers or self.allow_local_endpoint:
            raise self._refused("headers and allow_local_endpoint are for a url")
        if not command.strip() or any("\0" in word for word in (command, *self.args)):
            raise self._refused("its command is empty or holds a NUL")
        for number, word in enumerate(self.args, 1):
            pasted(word, "refuse", f"argument {number} of the MCP server {self.name!r}")
        for name, value in self.env.items():
            if not _variable.fullmatch(name) or "\0" in value:
                raise self._refused(f"{name!r} is no environment variable")
        self._require_references("variable", self.env)

    def _require_endpoint(self) -> None:
        if self.args or self.env or self.working_dir is not None:
            raise self._refused("args, env and working_dir are for a command")
        pasted(self.url or "", "refuse", f"the url of the MCP server {self.name!r}")
        try:
            place = self.destination
            if place.scheme == "http" and _is_public(place):
                raise EgressDenied("only https is allowed beyond the own network")
        except EgressDenied as error:
            hint = "" if self.allow_local_endpoint else "; allow_local_endpoint opens the own net"
            raise self._refused(f"its url cannot be used: {error.reason}{hint}") from None
        self._require_references("header", self.headers)

    def _require_references(self, what: str, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            place = f"the {what} {name} of the MCP server {self.name!r}"
            pasted(value, "refuse", place)
            # By its name, too: a short password looks like any word.
            if is_secret_name(name) and is_secret_value(value) and not names_in(value):
                raise ConfigError(f"{place} refers to a secret: write {{{{secrets.NAME}}}}")

    def _refused(self, reason: str) -> ConfigError:
        return ConfigError(f"the MCP server {self.name!r}: {reason}")


def _is_public(place: Destination) -> bool:
    """Whether the same place could be asked without opening the own network."""
    secure = msgspec.structs.replace(place, scheme="https", port=443)
    try:
        destination_of(secure.url)
    except EgressDenied:
        return False
    return True
