"""All names that perdure passes to OpenTelemetry: the names of the conventions, then its own.

The OpenTelemetry conventions are not stable yet; if they change, this file changes.
Source: OpenTelemetry semantic conventions for generative AI, as of 1.42, and their new repository
(open-telemetry/semantic-conventions-genai).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# ---------------------------------------------------------------- the conventions'

OPERATION: Final = "gen_ai.operation.name"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - of a model, no secret
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
ERROR_TYPE: Final = "error.type"

HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
"""The HTTP names are from the HTTP conventions and describe requests to perdure's server."""

INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
"""The attributes from `INSTRUCTIONS` to this one contain content and are set only on request."""

TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - likewise, of a model
OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
TURN_DURATION: Final = "gen_ai.invoke_agent.duration"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"

TOKENS: Final = tuple(4**power for power in range(14))
SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
"""The bounds of histogram buckets, which the conventions define."""

FINISH_REASONS_SHOWN: Mapping[str, str] = {"tool_calls": "tool_call", "aborted": "error"}
"""Finish reasons that have another name in the conventions."""

PROVIDERS: Mapping[str, str] = {"google": "gcp.gemini"}
"""Providers that have another name in the conventions."""

# ---------------------------------------------------------------- perdure's

TURN_END: Final = "perdure.turn.end"
PURPOSE: Final = "perdure.call.purpose"
ATTEMPT: Final = "perdure.attempt"
COST: Final = "perdure.cost.microcents"
EFFECT: Final = "perdure.tool.effect"
OUTCOME: Final = "perdure.tool.outcome"

NAMESPACE: Final = "perdure.namespace"
IS_SERVED: Final = "perdure.queue.is_served"
WORKER_STATE: Final = "perdure.worker.state"
IS_FALSE: Final = "perdure.takeover.is_false"

COST_TOTAL: Final = "perdure.cost"
TURNS_RUNNING: Final = "perdure.turns.running"
TURNS_WAITING: Final = "perdure.turns.waiting"
OLDEST_WAIT: Final = "perdure.turns.oldest_wait"
START_DELAY: Final = "perdure.turn.start_delay"
WORKERS: Final = "perdure.workers"
TAKEOVERS: Final = "perdure.takeovers"


def fact(name: str) -> str:
    """Return the attribute name for a fact of `events.scope`."""
    return f"perdure.{name}"
