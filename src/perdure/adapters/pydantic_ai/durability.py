"""The capability that makes the agents of Pydantic AI durable in a `DurableRun`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
    record_durable_unit,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT, RunContext

from perdure.adapters.pydantic_ai.messages import Item, readable
from perdure.adapters.pydantic_ai.runs import OnUnknown, current_run
from perdure.errors import WrongArgument

METADATA_KEY: Final = "perdure"
"""Key of a tool's metadata for its policy: ``{"perdure": {"on_unknown": "retry"}}``."""

_POLICIES: Final = ("never", "retry", "ask")

_Config = dict[str, Any]


@dataclass(init=False, kw_only=True)
class PerdureDurability(BaseDurabilityCapability[AgentDepsT]):
    """Stores every model call and tool call of an agent that runs in a `DurableRun`.

    The agent needs a `name`; if the name changes, unfinished runs start from the beginning. The
    capability has no effect outside of a `DurableRun`. `on_unknown` is the policy for tool calls
    that began and have no known outcome after a kill. "never" tells the model that the outcome is
    unknown, "retry" repeats the call, and "ask" requests an approval (`DeferredToolRequests`). The
    metadata of a tool can set the policy of this tool: ``metadata={"perdure": {"on_unknown":
    "retry"}}``. `models` and `event_stream_handler` mean the same as in the other durability
    capabilities of Pydantic AI.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="perdure",
        durable_unit_noun="unit",
        durable_container_noun="durable run",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        tool_config_key=METADATA_KEY,
    )

    def __init__(
        self,
        *,
        on_unknown: OnUnknown = "never",
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._tool_config = checked_policy({"on_unknown": on_unknown})

    @property
    def in_durable_context(self) -> bool:
        """Whether the caller runs inside a `DurableRun`."""
        return current_run() is not None

    def get_default_run_id(self) -> str | None:
        """Return the id of the next run of an agent in the current `DurableRun`."""
        run = current_run()
        return None if run is None else f"{run.id}:{run.number_of('run id')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return the conversation id of a run; a repeated run gets the same id."""
        return None if current_run() is None else conversation_id_from_run_id(run_id)

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Return the time of the run's first start; the run's timeout counts from this time."""
        run = current_run()
        if run is None:
            return None

        async def now() -> object:
            return datetime.now(UTC).isoformat()

        unit = f"start:{run_id}:{run.number_of(f'start:{run_id}')}"
        outcome, _ = await run.done(unit, now, unknown=lambda _: None)
        return datetime.fromisoformat(cast("str", outcome))

    def get_durable_operation_backend(self) -> DurableOperationBackend[Any]:
        """Return the backend that runs each operation as a unit of the current `DurableRun`."""
        resolve = self._build_resolve_tool_config(self._tool_config)

        def tool_config(_: DurableOperationId, tool: object | None, tool_name: str) -> Any:
            return resolve(cast("Any", tool), tool_name)

        config = RoleBasedOperationConfig[_Config](
            model={},
            event={},
            capability={},
            tool=self._tool_config,
            resolve_tool=cast("Any", tool_config),
        )
        return _LedgerBackend(agent_name=self.name, config=config)

    def _toolset_base_config(self, kind: object) -> _Config:
        return self._tool_config

    def _normalize_unit_config(self, config: Any) -> _Config:
        return checked_policy(config or {})


class _LedgerBackend(JournalCallableOperationBackend[_Config]):
    """Runs each operation; the run's ledger stores an intent before it and an outcome after it."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: _Config,
    ) -> object:
        """Return the outcome of the unit `name`; run `body` only if no outcome is stored."""
        run = current_run()
        if run is None:
            return await body()
        contexts = [cast("RunContext[Any]", e) for e in cache_key if isinstance(e, RunContext)]
        context = contexts[0] if contexts else None
        key = name
        if isinstance(operation_id, ToolsetCallToolId) and context is not None:
            # Calls of one answer run at the same time, in any order.
            step = f"{context.run_id}:{context.run_step}:{context.tool_call_id}"
            key = f"{name}:{step}:{context.retries.get(context.tool_name or '', 0)}"
        before: Sequence[Item] = ()
        after: Callable[[object], Sequence[Item]] = _nothing
        if isinstance(operation_id, ModelRequestId):
            before = _asked(cache_key)
            after = _answered
        policy = None
        if isinstance(operation_id, ToolsetCallToolId):
            policy = cast("OnUnknown", config.get("on_unknown", "never"))
        outcome, is_new = await run.done(
            f"{key}#{run.number_of(key)}",
            body,
            unknown=lambda failure: unknown_outcome(policy, failure),
            before=before,
            after=after,
        )
        record_durable_unit(executed=is_new)
        return outcome


def unknown_outcome(policy: OnUnknown | None, failure: str | None) -> dict[str, Any] | None:
    """Return the outcome for a call that failed or did not end; None if the call must be repeated.

    Shape: the outcome has the format of tool results in Pydantic AI's journals. If the call failed
    in an earlier process, `failure` is the text of the error.
    """
    if policy == "ask":
        return {"kind": "approval_required", "metadata": {"outcome": failure or "unknown"}}
    if policy == "never":
        what = (
            f"The call failed: {failure}"
            if failure
            else "The program ended during this call: its outcome is unknown. It may have had its "
            "effect. It was not called again."
        )
        return {"kind": "tool_failed", "message": what}
    return None


def checked_policy(config: Mapping[str, Any]) -> _Config:
    """Return `config` if it is a valid policy of a tool. Raises: WrongArgument otherwise."""
    unknown = set(config) - {"on_unknown"}
    policy: object = config.get("on_unknown", "never")
    if unknown or policy not in _POLICIES:
        raise WrongArgument(
            f'the metadata "{METADATA_KEY}" of a tool is {{"on_unknown": "never", "retry" or '
            f'"ask"}}, not {dict(config)!r}',
            argument="on_unknown",
        )
    return dict(config)


def _nothing(_: object) -> Sequence[Item]:
    return ()


def _asked(cache_key: tuple[object, ...]) -> Sequence[Item]:
    """Return the newest request of a model call, as messages for readers of the session."""
    for each in cache_key:
        if isinstance(each, list) and each:
            return readable(cast("list[ModelMessage]", each)[-1])
    return ()


def _answered(outcome: object) -> Sequence[Item]:
    response = cast("ModelResponse", ModelMessagesTypeAdapter.validate_python([outcome])[0])
    return readable(response)
