"""A client for Anthropic's messages API.

The module is imported at first use, because its SDK takes two seconds to load. Older models think
within a token budget. For older models, the API requires that a request repeats the reasoning that
preceded the open tool calls. If this process did not receive the reasoning, or no longer has it in
memory, the request is sent without thinking. Newer models decide themselves how much to think, and
accept requests with or without the reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient, Timeout
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.settings import ModelSettings

from perdure.models.protocol import ModelRequest, ThinkingLevel
from perdure.models.providers.bounded_http import HOOKS
from perdure.models.providers.call import SOCKET_TIMEOUT_S, Connection, WireClient
from perdure.models.providers.rehearsal import MESSAGES
from perdure.models.providers.rounds import open_rounds

LEAST_BUDGET_TOKENS = 1024
"""The smallest budget the API accepts."""

LEAST_ANSWER_TOKENS = 1024
"""Tokens that thinking must leave for the answer: one limit covers thinking and answer."""

_BUDGET_TOKENS: Mapping[ThinkingLevel, int] = {
    "minimal": LEAST_BUDGET_TOKENS,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}


class AnthropicMessages(WireClient):
    """Client for the models of Anthropic, or of a proxy in front of Anthropic."""

    rehearsal = MESSAGES
    own_provider = "anthropic"

    def _connect(self, connection: Connection) -> None:
        self._sdk = AsyncAnthropic(
            base_url=connection.url,
            api_key=connection.api_key,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(
                timeout=Timeout(SOCKET_TIMEOUT_S, connect=connection.connect_timeout_s),
                event_hooks=HOOKS,
                transport=connection.transport,
            ),
        )
        self._provider = AnthropicProvider(anthropic_client=self._sdk)

    async def aclose(self) -> None:
        await self._sdk.close()

    def _new_model(self, name: str) -> Model[Any]:
        return AnthropicModel(name, provider=self._provider)

    def _settings(self, request: ModelRequest) -> ModelSettings:
        profile = self._model(request.model).profile
        # A tool loop sends the same beginning repeatedly: cached, it costs a tenth.
        settings: AnthropicModelSettings = {**super()._settings(request), "cache": True}
        if _thinks_by_budget(profile):
            budget = _budget_tokens(request)
            if budget is None or not self._can_think(request):
                settings["thinking"] = False
            else:
                settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": budget}
        if settings.get("thinking") is not False or _refuses_sampling(profile):
            settings.pop("temperature", None)
        return settings

    def _can_think(self, request: ModelRequest) -> bool:
        """Return whether the reasoning that the API requires in `request` is still in memory."""
        answers = [m for m in open_rounds(request.messages) if m.role == "assistant"]
        return not answers or (
            answers[-1].model == request.model and self._rounds.recall(answers[-1]) is not None
        )


def _thinks_by_budget(profile: ModelProfile) -> bool:
    is_adaptive = bool(profile.get("anthropic_supports_adaptive_thinking", False))
    return bool(profile.get("supports_thinking", False)) and not is_adaptive


def _refuses_sampling(profile: ModelProfile) -> bool:
    return bool(profile.get("anthropic_disallows_sampling_settings", False))


def _budget_tokens(request: ModelRequest) -> int | None:
    """Return the thinking budget; None if there is none, or if it is below the API's minimum."""
    budget = _BUDGET_TOKENS.get(request.thinking_level)
    if budget is not None and request.max_output_tokens is not None:
        budget = min(budget, request.max_output_tokens - LEAST_ANSWER_TOKENS)
    return budget if budget is not None and budget >= LEAST_BUDGET_TOKENS else None
