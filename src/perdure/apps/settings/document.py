"""The keys of a settings file, the layers that may set them, and their defaults.

A project's file comes with a cloned repository, so the file can only set the project's namespace
and restrict the user's permissions. A project's file cannot choose a model or a store, because that
would send data elsewhere, and it cannot allow commands, hosts or spending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.bounds.limits import InputLimits
from perdure.engine.turns.config import MAX_TURNS, CompactionSettings, OnExceed
from perdure.errors import ConfigError, WrongArgument
from perdure.models.catalogue import is_model_name, require_model_name
from perdure.models.prices import Price, dollars
from perdure.models.protocol import ThinkingLevel
from perdure.models.protocol import TimeoutS as ModelTimeoutS
from perdure.session.ledger import UnknownPolicy
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.tools.mcp.servers import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S, McpServer, TimeoutS
from perdure.tools.permissions import SCOPES, ApprovalMode, Permissions, Scope

MOST = 2**63 - 1
"""The greatest integer that all stores and formats can represent."""

Text = Annotated[str, Meta(min_length=1, pattern=r"\S")]
Dollars = Annotated[float, Meta(ge=0, le=1_000_000)]


def commands_and_hosts(commands: tuple[str, ...], domains: tuple[str, ...]) -> Permissions:
    """Return permissions for `domains` and `commands`; a command with ``*`` or ``?`` is a pattern.

    Raises: ConfigError for an invalid command or domain.
    """
    patterns = tuple(line for line in commands if "*" in line or "?" in line)
    return Permissions(
        allowed_commands=tuple(line for line in commands if line not in patterns),
        allowed_command_globs=patterns,
        allowed_domains=domains,
    )


def search_permissions(endpoint: str) -> Permissions:
    """Return permissions for the search engine at `endpoint`; a local engine may use http.

    Raises: ConfigError for an invalid address.
    """
    return Permissions(search_endpoint=endpoint, is_search_local=endpoint.startswith("http://"))


DisplayMode = Literal["auto", "screen", "inline", "lines"]
"""How ``perdure chat`` uses a terminal: full screen, lines below the prompt, or line by line."""

Theme = Literal["auto", "dark", "light", "terminal"]


class ChatSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of new chats on the command line."""

    model: Annotated[Text | None, Meta(description="The model, as provider:name.")] = None
    agent: Annotated[Text | None, Meta(description="The agent, by its id.")] = None
    thinking_level: ThinkingLevel | None = "off"
    approval: Annotated[
        ApprovalMode | None, Meta(description="The approval mode of tool calls.")
    ] = "ask"
    fs_scope: Annotated[Scope | None, Meta(description="The folders that file tools can use.")] = (
        "sandboxed"
    )
    allowed_commands: Annotated[
        tuple[Text, ...] | None,
        Meta(description="Commands that tools can run; * and ? make patterns."),
    ] = ()
    allowed_domains: Annotated[
        tuple[Text, ...] | None, Meta(description="Hosts that tools can contact.")
    ] = ()
    turn_cap: Annotated[
        Annotated[int, Meta(ge=1, le=MOST)] | None,
        Meta(description="Maximum number of turns of a session."),
    ] = MAX_TURNS
    max_cost_microcents: Annotated[
        Annotated[int, Meta(ge=0, le=MOST)] | None,
        Meta(description="Maximum cost of a session; 100,000,000 are one dollar; 0: no limit."),
    ] = 0
    on_exceed: Annotated[
        OnExceed | None,
        Meta(description="What happens before a call that might exceed the maximum cost."),
    ] = "pause_for_approval"
    mcp_servers: Annotated[
        tuple[Text, ...] | None, Meta(description="MCP servers of the settings, by name.")
    ] = ()
    max_messages: Annotated[
        Annotated[int, Meta(ge=0, le=MOST)] | None,
        Meta(description="How many of the newest messages a model is sent; 0: no limit."),
    ] = 0
    auto_compact: Annotated[
        bool | None, Meta(description="Whether a long context is compacted automatically.")
    ] = True
    compact_threshold: Annotated[
        Annotated[float, Meta(gt=0, le=1)] | None,
        Meta(description="The used share of the model's window that starts a compaction."),
    ] = CompactionSettings().trigger
    first_byte_timeout_s: Annotated[
        ModelTimeoutS | None, Meta(description="Limit on the wait for an answer's first byte.")
    ] = None
    stream_idle_timeout_s: Annotated[
        ModelTimeoutS | None,
        Meta(description="Limit on the wait for each further byte of an answer."),
    ] = None

    display: Annotated[DisplayMode | None, Meta(description="How the chat uses a terminal.")] = (
        "auto"
    )
    theme: Annotated[
        Theme | None, Meta(description="The colours; terminal: those of the terminal itself.")
    ] = "auto"

    def __post_init__(self) -> None:
        if self.model is not None:
            require_model_name(self.model)
        for commands, domains, setting in (
            (self.allowed_commands, None, "allowed_commands"),
            (None, self.allowed_domains, "allowed_domains"),
        ):
            try:
                commands_and_hosts(commands or (), domains or ())
            except ConfigError as error:
                error.argument = setting
                raise


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of the store."""

    address: Annotated[
        Text | None, Meta(description="The address of the store, as for --store.")
    ] = None
    namespace: Annotated[
        Text | None, Meta(description="The namespace of the store that commands use.")
    ] = "default"
    lock_timeout_s: Annotated[
        float, Meta(gt=0, description="The longest wait for a lock of another process, in seconds.")
    ] = LOCK_TIMEOUT_S


class ToolSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of the built-in tools."""

    search_endpoint: Annotated[
        Text | None, Meta(description="The address of the search engine for web_search.")
    ] = None

    def __post_init__(self) -> None:
        if self.search_endpoint is not None:
            try:
                search_permissions(self.search_endpoint)
            except ConfigError as error:
                raise ConfigError(str(error), argument="search_endpoint") from error


class FiledPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of a model. Units: US dollars per million tokens."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None

    @property
    def price(self) -> Price:
        """The price in micro-cents."""
        read, write = self.cache_read, self.cache_write
        return Price(
            dollars(self.input),
            dollars(self.output),
            None if read is None else dollars(read),
            None if write is None else dollars(write),
        )


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of the models."""

    prices: Annotated[
        dict[str, FiledPrice] | None,
        Meta(description="Prices by provider:name or provider:*, in dollars per million tokens."),
    ] = {}

    def __post_init__(self) -> None:
        for model in self.prices or {}:
            if not is_model_name(model):
                raise WrongArgument(
                    f"{model!r:.80} is no model to have a price: write provider:name, or provider:*"
                    " for every other one of a provider",
                    argument="prices",
                )


class FiledServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An MCP server: a program to start, or an address (docs/guides/mcp.md)."""

    command: Annotated[Text | None, Meta(description="The program that is started.")] = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    working_dir: str | None = None
    url: Annotated[Text | None, Meta(description="The address at which the server listens.")] = None
    headers: dict[str, str] = {}
    allow_local_endpoint: bool = False
    tools_allowlist: tuple[Text, ...] | None = None
    trusts_annotations: bool = False
    on_unknown: UnknownPolicy | None = None
    connect_timeout_s: TimeoutS = CONNECT_TIMEOUT_S
    timeout_s: TimeoutS = CALL_TIMEOUT_S

    def server(self, name: str) -> McpServer:
        """Return the server with the name `name`.

        Raises: ConfigError for an invalid or unsafe server.
        """
        return McpServer(name=name, **msgspec.structs.asdict(self))


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """MCP servers.

    Each server is validated by itself, so an invalid server does not affect others.
    """

    servers: Annotated[
        dict[str, FiledServer] | None, Meta(description="MCP servers by the name that agents use.")
    ] = {}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of a settings file, as it was written."""

    chat: ChatSettings = ChatSettings()
    store: StoreSettings = StoreSettings()
    tools: ToolSettings = ToolSettings()
    models: ModelSettings = ModelSettings()
    mcp: McpSettings = McpSettings()
    limits: InputLimits = InputLimits()


BUILT_IN: Mapping[str, object] = {
    f"{table}.{key}": getattr(settings, key)
    for table, settings in msgspec.structs.asdict(Settings()).items()
    for key in settings.__struct_fields__
}
"""Maps each key to its default, in the order in which settings are printed."""

VARIABLES: Mapping[str, str] = {
    "chat.model": "PERDURE_MODEL",
    "store.address": "PERDURE_STORE",
    "store.namespace": "PERDURE_NAMESPACE",
    "tools.search_endpoint": "PERDURE_SEARCH_URL",
}
"""Maps a key to the environment variable that sets it."""

_APPROVALS: tuple[ApprovalMode, ...] = ("plan", "ask", "accept-edits", "auto")

Narrower = Callable[[object, object], object]


def _earlier_in(order: tuple[str, ...]) -> Narrower:
    return lambda one, other: min(one, other, key=lambda each: order.index(str(each)))


def _fewer(one: object, other: object) -> object:
    return min(one, other, key=lambda each: each if isinstance(each, int) and each else 2**63)


AT_MOST: Mapping[str, Narrower] = {
    "chat.fs_scope": _earlier_in(SCOPES),
    "chat.approval": _earlier_in(_APPROVALS),
    "chat.turn_cap": _fewer,
    "chat.max_cost_microcents": _fewer,
}
"""Maps a key that a project may only restrict to a function that returns the stricter value."""

OF_PROJECTS: Mapping[str, str] = {
    "store.namespace": "keeps the project's sessions apart in the person's own store",
    "chat.fs_scope": "at most: it can only be narrowed",
    "chat.approval": "at most: it can only be made stricter",
    "chat.turn_cap": "at most: it can only be lowered",
    "chat.max_cost_microcents": "at most: it can only be lowered",
}
"""Maps each key that a project may set to the reason why a project may set it."""
