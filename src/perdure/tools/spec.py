"""What a tool is: its name, its schema, what it does to the world, and how it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from perdure.session.ledger import Effect, UnknownPolicy
from perdure.session.messages import MediaPart

DEFAULT_TIMEOUT_S = 120.0
DEFAULT_OUTPUT_BYTES = 50 * 1024

ToolStatus = Literal["ok", "error"]


class ToolCall(msgspec.Struct, frozen=True):
    """One call as the tool sees it.

    `idempotency_key` is the same for every attempt of one call, across crashes and machines: give
    it to the outside service, and a repeated call does nothing. `attempt` counts from 1.
    `working_dir` is the session's workspace.
    """

    id: str
    tool: str
    args: Mapping[str, object]
    session_id: str
    idempotency_key: str
    attempt: int
    working_dir: Path


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool gives back. `ends_session` closes the session when the turn is finished."""

    text: str
    is_error: bool = False
    media: tuple[MediaPart, ...] = ()
    ends_session: bool = False


Run = Callable[[ToolCall], Awaitable[ToolOutput]]


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool that can be run.

    `effect` says what it does: ``read`` changes nothing, ``write`` changes the workspace,
    ``external`` changes something elsewhere. `on_unknown` says what to do when perdure was killed
    while it ran: ``retry`` it, ``ask`` a person, or ``never`` repeat it.
    Units: `timeout_s` seconds, `max_output_bytes` bytes of UTF-8 that the model is shown.
    Shape: `parameters` is a JSON Schema of type object.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    run: Run
    effect: Effect = "external"
    on_unknown: UnknownPolicy = "ask"
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_output_bytes: int = DEFAULT_OUTPUT_BYTES
