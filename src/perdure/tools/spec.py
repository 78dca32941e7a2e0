"""What a tool is: its name, its schema, what it does to the world, and how it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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
"""What all providers accept as the name of a tool."""

Action = Literal["fs_write", "process", "egress", "os"]
"""What approvals are about: changing files, running a program, sending out, the desktop."""

ReadMedia = Callable[[str], Awaitable[bytes]]
"""Handle -> content. Raises: ToolDenied for what the session does not hold."""


Invoke = Callable[["ToolCall", str, str], Awaitable["ToolOutput"]]
"""(call, agent, input) -> what that agent answered. Raises: ToolError when it cannot be asked."""


def _no_secrets() -> Taint:
    return Taint(Vault({}, lambda account: None))


class ToolCall(msgspec.Struct, frozen=True):
    """One call as the tool sees it.

    `idempotency_key` is the same for every attempt of one call, across crashes and machines: give
    it to the outside service, and a repeated call does nothing. `attempt` counts from 1.
    `working_dir` is the session's workspace, `permissions` what its built-in tools may touch.
    `secrets` gives values of named secrets: what the tool returns is scrubbed of them.
    `scratch_dir` is where what is no part of the work may be kept; None where there is none.
    `read_media` gives what the session holds; None where it holds nothing. `invoke` asks another
    agent; None where there is none. `closed` are files and folders that no tool touches, wherever
    they are: the session's own store. `record` is the record folder of the flow that the session
    works for; None where it works for none. `approved` is what a person was shown besides the
    arguments (`Bound.facts`); None where no approval was needed.
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


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool gives back: text, and media as handles or as content that is then kept.

    `ends_session` closes the session when the turn is finished; `delegated` is the session that
    the call opened for another agent.
    """

    text: str
    is_error: bool = False
    media: tuple[MediaPart | InlineMedia, ...] = ()
    ends_session: bool = False
    delegated: Delegated | None = None

    def __post_init__(self) -> None:
        check_fields(self, has_any_text=True)


class Subject(msgspec.Struct, frozen=True):
    """What a call is about, as a person is shown it: a path, a command, a host.

    `grant` is what "always" would allow, None where each call is asked for. `host` is where a call
    that sends something out sends it.
    """

    shown: str
    grant: str | None = None
    host: str | None = None


Run = Callable[[ToolCall], Awaitable[ToolOutput]]
Bind = Callable[[ToolCall], Bound]
"""What an approval of this call is bound to. Reads files, so it runs in a thread.

Raises: ToolError for a call that cannot run."""
Arguments = Callable[[Mapping[str, object]], Mapping[str, object]]
"""Checks and converts a call's arguments. Raises: InvalidArguments."""

Examine = Callable[[Mapping[str, object], Permissions], Subject]
"""What a call with these arguments is about. Pure. Raises: ToolError for what may never be done."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool that can be run.

    `effect` says what it does: ``read`` changes nothing, ``write`` changes the workspace,
    ``external`` changes something elsewhere. `on_unknown` says what to do when perdure was killed
    while it ran: ``retry`` it, ``ask`` a person, or ``never`` repeat it.
    `action` makes it a tool that is approved first: `examine` then says what a call is about,
    `bind` what its approval is bound to besides the arguments, and `is_gated` that a person is
    asked in every mode. A `bind` without an `action` only finds what is in doubt. `config_only` are
    names that a model cannot give. `is_outside` brands what it returns as written by strangers.
    Units: `timeout_s` seconds, `max_output_bytes` bytes of UTF-8 that the model is shown.
    Shape: `parameters` is a JSON Schema of type object.
    """

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
    is_outside: bool = False
    config_only: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_fields(self)
