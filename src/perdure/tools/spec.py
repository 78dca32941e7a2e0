"""The definition of a tool: its name, schema, effect, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.bounds.short_repr import ShortRepr, short_repr
from perdure.secrets.vault import Taint, Vault
from perdure.session.argument_checks import check_fields
from perdure.session.ledger import Delegated, ToolEffect, UnknownPolicy
from perdure.session.media.inline import InlineMedia
from perdure.session.messages import MediaPart
from perdure.tools.approval import Bound
from perdure.tools.permissions import Permissions

DEFAULT_TIMEOUT_S = 120.0
DEFAULT_OUTPUT_BYTES = 50 * 1024
DEFAULT_OUTPUT_LINES = 2000

ToolName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")]
"""A tool name that all providers accept."""

Action = Literal["fs_write", "process", "egress", "os"]
"""Kinds of actions that need approval: change files, run programs, send data, use the desktop."""

ReadMedia = Callable[[str], Awaitable[bytes]]
"""Returns the content for a handle. Raises: ToolDenied if the session does not have the handle."""


Invoke = Callable[["ToolCall", str, str], Awaitable["ToolOutput"]]
"""Calls an agent: (call, agent, input) -> its answer. Raises: ToolError if this is impossible."""


def _no_secrets() -> Taint:
    return Taint(Vault({}, lambda account: None))


class ToolCall(ShortRepr, frozen=True):
    """One tool call, as passed to the tool.

    `idempotency_key` is the same for every attempt of one call, across crashes and machines. Pass
    `idempotency_key` to an external service, so that a repeated call has no second effect.
    `attempt` counts the attempts of the call from 1. `working_dir` is the session's workspace, and
    `permissions` are the access rights of the agent's built-in tools. `secrets` resolves named
    secrets, which are removed from the tool's output. `scratch_dir` is for temporary files that are
    not part of the work; None if there is no such directory. `read_media` reads the session's
    media; None if the session has none. `invoke` calls another agent; None if there is no other
    agent. `closed` are files and folders that no tool is allowed to access, wherever they are, such
    as the session's own store. `record` is the record folder of the session's flow; None if the
    session has no flow. `approved` are the facts that a person approved besides the arguments
    (`Bound.facts`); None if no approval was needed.
    """

    id: str
    tool: str
    args: Mapping[str, object]
    session_id: str
    idempotency_key: str
    attempt: int
    working_dir: Path
    permissions: Permissions = Permissions()
    secrets: Taint = msgspec.field(default_factory=_no_secrets)
    scratch_dir: Path | None = None
    read_media: ReadMedia | None = None
    invoke: Invoke | None = None
    closed: tuple[str, ...] = ()
    record: Path | None = None
    approved: Mapping[str, str] | None = None


class ToolOutput(ShortRepr, frozen=True):
    """A tool's result: text, and media as handles or as content to be stored.

    If `ends_session` is True, the session is closed when the turn ends. `delegated` is the session
    that the call opened for another agent.
    """

    text: str
    is_error: bool = False
    media: Sequence[MediaPart | InlineMedia] = ()
    ends_session: bool = False
    delegated: Delegated | None = None

    def __post_init__(self) -> None:
        check_fields(self, has_any_text=True)
        msgspec.structs.force_setattr(self, "media", tuple(self.media))


class Subject(ShortRepr, frozen=True):
    """The object of a call, as shown to a person: a path, a command or a host.

    `grant` is the permission that the answer "always" gives; None if every call needs its own
    approval. `host` is the destination of a call that sends data out.
    """

    shown: str
    grant: str | None = None
    host: str | None = None


Run = Callable[[ToolCall], Awaitable[ToolOutput]]
Bind = Callable[[ToolCall], Bound]
"""Returns the data that an approval of a call covers. Reads files, so it runs in a thread.

Raises: ToolError if the call cannot run."""
Arguments = Callable[[Mapping[str, object]], Mapping[str, object]]
"""Validates and converts a call's arguments. Raises: InvalidArguments."""

NeedsApproval = Callable[[Mapping[str, object]], bool]
"""Returns whether a call with these arguments needs approval. Pure."""

Examine = Callable[[Mapping[str, object], Permissions], Subject]
"""Returns the `Subject` of a call with these arguments.

Pure. Raises: ToolError if such a call is never allowed.
"""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool that can be run.

    `effect`: ``read`` changes nothing, ``write`` changes the workspace, ``external`` changes
    something elsewhere. `on_unknown` is the policy if perdure was killed while the tool ran:
    ``retry`` the call, ``ask`` a person, or ``never`` repeat the call. A tool with an `action`
    needs approval, and its `examine` returns the `Subject` of a call. An approval is valid only for
    the call's arguments and the facts that `bind` returns. If `is_gated` is True, perdure asks a
    person in every mode. A call needs no approval if `needs_approval` returns False for its
    arguments. In a tool without an `action`, `bind` only looks for problems that a person must
    decide on first (`Doubt`). `config_only` are names of arguments that a model cannot set.
    `is_outside` marks the tool's output as written by outsiders.
    Units: `timeout_s` is in seconds, `max_output_bytes` in bytes of UTF-8 shown to the model.
    Shape: `parameters` is a JSON Schema of type object.
    """

    __repr__ = short_repr

    name: ToolName
    description: str
    parameters: Mapping[str, object]
    run: Run
    effect: ToolEffect = "external"
    on_unknown: UnknownPolicy = "ask"
    timeout_s: Annotated[float, Meta(gt=0)] = DEFAULT_TIMEOUT_S
    max_output_bytes: Annotated[int, Meta(ge=1)] = DEFAULT_OUTPUT_BYTES
    action: Action | None = None
    examine: Examine | None = None
    bind: Bind | None = None
    arguments: Arguments | None = None
    is_gated: bool = False
    needs_approval: NeedsApproval | None = None
    is_outside: bool = False
    config_only: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def is_async(self) -> bool:
        """Whether the tool is a coroutine function.

        A tool that is not a coroutine function is allowed to block its thread.
        """
        return inspect.iscoroutinefunction(self.run)
