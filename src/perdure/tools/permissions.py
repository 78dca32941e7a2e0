"""Access rights of an agent's built-in tools, as plain data that every session stores.

This module is pure. Everything that is not allowed is denied. A session can restrict its agent's
permissions but never extend them (`restrict`). Secrets appear by name, as ``{{secrets.NAME}}``,
never as values.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.bounds.short_repr import short_repr
from perdure.egress.destinations import destination_of, host_name
from perdure.errors import ConfigError, EgressDenied
from perdure.secrets.pasted_keys import apply_paste_policy
from perdure.secrets.references import names_in
from perdure.session.argument_checks import NamedParameters, check_fields, takes_declared
from perdure.tools.commands import canonical, is_allowed, rule_words

Scope = Literal["sandboxed", "project", "full"]
ApprovalMode = Literal["ask", "plan", "accept-edits", "auto"]

SCOPES: tuple[Scope, ...] = ("sandboxed", "project", "full")
"""All scopes, from the narrowest to the widest."""

MAX_COMMAND_S = 120.0

_variable = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FORBIDDEN = frozenset(
    (
        *("PATH", "HOME", "SHELL", "IFS", "ENV", "BASH_ENV", "CDPATH", "TMPDIR", "EDITOR"),
        *("VISUAL", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "BROWSER", "PROMPT_COMMAND"),
        *("PS4", "NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT"),
        *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "SSH_ASKPASS"),
        *("SSH_AUTH_SOCK", "USERPROFILE", "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES"),
        *("RES_OPTIONS", "MALLOC_TRACE", "COMSPEC", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"),
        *("OPENSSL_CONF", "CURL_HOME", "WGETRC", "RUSTC_WRAPPER"),
    )
)
_FORBIDDEN_BEGIN = (
    *("LD_", "DYLD_", "GIT_", "PYTHON", "BASH_FUNC_", "NPM_CONFIG_", "PERDURE_", "PIP_"),
)


class Permissions(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=NamedParameters
):
    """The access rights of an agent's built-in tools.

    `scope` limits the files: ``sandboxed`` allows the working directory, ``project`` also allows
    the directories `roots`, and ``full`` allows every path. In every scope, files such as
    credentials and ``.git`` stay closed (floors). A command is allowed if it equals one of
    `allowed_commands` or matches one of `allowed_command_globs` (`tools.commands`). The glob ``**``
    matches every command. A command runs with the minimal environment and `command_env`.
    `allowed_domains` are exact host names. `credentials` maps hosts in `allowed_domains` to
    Authorization headers. `web_search` queries `search_endpoint` with `search_credential`;
    `is_search_local` allows an endpoint in the local network. `approval` selects which calls need
    approval (`tools.permission_check`).
    Units: `command_timeout_s` is in seconds, at most 120.
    Raises: ConfigError if a value cannot work or is unsafe.
    """

    __repr__ = short_repr

    scope: Scope = "sandboxed"
    roots: tuple[str, ...] = ()
    allowed_commands: tuple[str, ...] = ()
    allowed_command_globs: tuple[str, ...] = ()
    command_env: dict[str, str] = {}
    command_timeout_s: Annotated[float, Meta(gt=0, le=MAX_COMMAND_S)] = 30.0
    allowed_domains: tuple[str, ...] = ()
    credentials: dict[str, str] = {}
    search_endpoint: str | None = None
    search_credential: str | None = None
    is_search_local: bool = False
    approval: ApprovalMode = "ask"

    def __post_init__(self) -> None:
        check_fields(self)
        for line in self.allowed_commands:
            with _naming("allowed_commands", line):
                _require_exact(line)
        for line in self.allowed_command_globs:
            with _naming("allowed_command_globs", line):
                _require_rule(line, is_glob=True)
        for name, value in self.command_env.items():
            with _naming("command_env", name):
                _require_variable(name, value)
        self._require_hosts()
        if self.search_credential is not None:
            with _naming("search_credential"):
                _require_reference("search_credential", self.search_credential)
        if self.search_endpoint is not None:
            self._require_endpoint(self.search_endpoint)

    def _require_hosts(self) -> None:
        """Check and normalize the allowed domains, and the domains of the credentials."""
        hosts: list[str] = []
        for domain in self.allowed_domains:
            with _naming("allowed_domains", domain):
                hosts.append(_host(domain))
        msgspec.structs.force_setattr(self, "allowed_domains", tuple(hosts))
        given: dict[str, str] = {}
        for domain, text in self.credentials.items():
            with _naming("credentials", domain):
                host = _host(domain)
                if host not in hosts:
                    raise ConfigError(
                        f"there is a credential for {host}, which is no allowed domain"
                    )
                _require_reference(f"the credential for {host}", text)
                given[host] = text
        msgspec.structs.force_setattr(self, "credentials", given)

    def _require_endpoint(self, endpoint: str) -> None:
        try:
            destination_of(endpoint, is_local_open=self.is_search_local)
        except EgressDenied as error:
            raise ConfigError(
                f"search_endpoint cannot be used: {error.reason} (is_search_local allows one of "
                "the own network)",
                argument="search_endpoint",
            ) from None

    @takes_declared
    def restrict(
        self,
        *,
        scope: Scope | None = None,
        allowed_commands: Iterable[str] | None = None,
        allowed_domains: Iterable[str] | None = None,
    ) -> Permissions:
        """Return a copy of these permissions, restricted by each argument that is not None.

        Raises: ConfigError if an argument allows more than these permissions.
        """
        changed = self
        if scope is not None:
            if SCOPES.index(scope) > SCOPES.index(self.scope):
                raise ConfigError(f"the agent's scope is {self.scope}; {scope} would be wider")
            changed = msgspec.structs.replace(changed, scope=scope)
        if allowed_commands is not None:
            lines = tuple(allowed_commands)
            for line in lines:
                self._require_allowed(line)
            changed = msgspec.structs.replace(
                changed, allowed_commands=lines, allowed_command_globs=()
            )
        if allowed_domains is not None:
            hosts = tuple(_host(domain) for domain in allowed_domains)
            if wider := sorted(set(hosts) - set(self.allowed_domains)):
                raise ConfigError(f"the agent may not reach {', '.join(wider)}")
            kept = {host: text for host, text in self.credentials.items() if host in hosts}
            changed = msgspec.structs.replace(changed, allowed_domains=hosts, credentials=kept)
        return changed

    def _require_allowed(self, line: str) -> None:
        argv = _require_rule(line, is_glob=False)
        if not is_allowed(argv, self.allowed_commands, self.allowed_command_globs):
            raise ConfigError(f"the agent may not run {canonical(argv)!r}; it would be wider")


def narrower(one: Scope, other: Scope) -> Scope:
    """Return the narrower of the two scopes."""
    return SCOPES[min(SCOPES.index(one), SCOPES.index(other))]


@contextmanager
def _naming(setting: str, item: str | None = None) -> Generator[None]:
    """Add the `setting` and its `item` to errors that are raised inside the ``with`` block."""
    try:
        yield
    except ConfigError as error:
        error.argument = setting
        if item is not None:
            error.item = item
        raise


def _require_exact(line: str) -> None:
    try:
        _require_rule(line, is_glob=False)
    except ConfigError as error:
        if "*" not in line and "?" not in line:
            raise
        raise ConfigError(f"{error}, or put the pattern into allowed_command_globs") from None


def _require_rule(line: str, *, is_glob: bool) -> tuple[str, ...]:
    try:
        return rule_words(line, is_glob=is_glob)
    except ValueError as error:
        raise ConfigError(f"{line!r} is no rule for commands: {error}") from None


def _require_variable(name: str, value: str) -> None:
    upper = name.upper()
    if not _variable.fullmatch(name) or "\0" in value:
        raise ConfigError(f"{name!r} is no environment variable")
    if upper in _FORBIDDEN or upper.startswith(_FORBIDDEN_BEGIN):
        raise ConfigError(f"commands may not be given ${name}: it changes what is run")
    apply_paste_policy(value, "refuse", f"the variable {name} of command_env")


def _require_reference(place: str, text: str) -> None:
    apply_paste_policy(text, "refuse", place)
    if not names_in(text):
        raise ConfigError(f"{place} refers to a secret: write {{{{secrets.NAME}}}}")


def _host(domain: str) -> str:
    try:
        return host_name(domain)
    except EgressDenied as error:
        raise ConfigError(f"{domain!r} is no domain: {error.reason}") from None
