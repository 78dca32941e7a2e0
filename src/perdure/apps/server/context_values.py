"""API values for a context: the messages that a model receives, and the content left out."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from perdure.apps.server.values import Tokens, Value


class ContextPart(Value, frozen=True, kw_only=True):
    """A message of a model request, and the entry it comes from."""

    role: str
    parts: list[Any]
    entry_id: str | None


class SentTool(Value, frozen=True, kw_only=True):
    """A tool that a request declared.

    `is_loaded` is False if the server does not have this tool with the recorded schema, for example
    because an MCP server is not connected, or because the program changed after the request. The
    log contains no descriptions of tools, so the descriptions come from the program that is loaded
    now.
    """

    name: str
    is_loaded: bool
    description: str | None = None
    parameters: dict[str, Any] | None = None


class SentOptions(Value, frozen=True, kw_only=True):
    """The options of a request besides its model; null means the default of the provider."""

    temperature: float | None = None
    max_output_tokens: int | None = None
    output_schema: dict[str, Any] | None = None


class OverflowView(Value, frozen=True, kw_only=True):
    """A context whose required messages have more `tokens` than the `budget` allows.

    `code` is the stable error code of a request that does not fit the budget.
    """

    code: str
    detail: str
    tokens: int
    budget: int


class TrimmedView(Value, frozen=True, kw_only=True):
    """The content that was left out of a request.

    `limit` names the limit that was exceeded; `tokens` is the size that this limit allows.

    `recalled` counts the recalled texts that were left out of the request.
    """

    dropped: int
    kept: int
    limit: str | None
    tokens: int | None
    recalled: int


class RecalledPart(Value, frozen=True, kw_only=True):
    """A text that was recalled for a request, and the reason.

    `text` is null if it was erased after the request.
    """

    kind: Literal["fact", "said", "knowledge", "episode"]
    entry_id: str
    text: str | None
    words: tuple[str, ...]
    why: tuple[str, ...]
    score: float | None


class ContextView(Value, frozen=True, kw_only=True):
    """The context that a model would receive now, or that it received in the call `call`.

    `dropped` counts the entries that were left out to fit the budget; `earlier` counts the messages
    before the shown ones. `overflow` is set if the remaining messages still exceed the requested
    `budget`. The `system` text, `tools` and `options` come from the session's agent; if no agent is
    in force, they are empty. `reported`, `trimmed` and `recalled` have a value only for a past
    call. `recalled` contains the texts that were sent before the history.
    """

    model: str | None
    thinking_level: str | None
    tokens: int
    messages: list[ContextPart]
    dropped: int
    skipped: int
    earlier: int = 0
    call: int | None = None
    reported: Tokens | None = None
    system: str | None = None
    tools: list[SentTool] = msgspec.field(default_factory=list[SentTool])
    options: SentOptions | None = None
    trimmed: TrimmedView | None = None
    recalled: list[RecalledPart] = msgspec.field(default_factory=list[RecalledPart])
    budget: int | None = None
    overflow: OverflowView | None = None
