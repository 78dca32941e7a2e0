"""``perdure flow compact``: summarize the context of a role, with facts from the flow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.options import ModelOption, ScenarioOption
from perdure.apps.cli.sessions.changes import FocusOption, told_compaction
from perdure.apps.cli.store_options import CommonOptions
from perdure.apps.flow.flow_access import flows_of
from perdure.apps.flow.options import ActingOptions, FlowArgument, WorkspaceOption
from perdure.apps.flow.run import resumed_flow
from perdure.apps.wiring import scenario_in
from perdure.client.store import Store
from perdure.errors import FlowNotFound
from perdure.session.entries import Entry
from perdure.session.flows.kinds import RunSettings
from perdure.session.ids import StreamId


async def compact(
    flow: FlowArgument,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="The role instance.")],
    *,
    focus: FocusOption = None,
    workspace: WorkspaceOption = None,
    model: ModelOption = None,
    scenario: ScenarioOption = None,
    common: CommonOptions,
) -> None:
    """Replace the context of a role with a summary of the role's work at its current node.

    The model of the role writes the summary. -m or --scenario names another model for this summary
    only. The flow adds facts to the summary: the role, the node with its contract and inputs, the
    record, the edges, and an unanswered message. The log keeps all messages: `perdure sessions
    uncompact FLOW__ROLE` undoes the compaction.

    Examples:
        perdure flow compact 20260527T14 developer_2
        perdure flow compact 20260527T14 reviewer --focus "what is still open"
        perdure flow compact 20260527T14 reviewer -m openai:gpt-5-mini

    Exit codes:
        1  the model did not answer
        4  the role is at work, or has not worked yet
    """
    typed = ActingOptions(model=model, scenario=scenario).typed()

    async with common.existing_store() as opened:
        async with flows_of(opened) as flows:
            state = await flows.state(await opened.find(flow, only="flow"))
        known = state.sessions.get(role)
        before = 0 if known is None else (await (await opened.open(known)).context()).tokens
        resumed = resumed_flow(opened, state, typed, workspace, is_for_one_call=True)
        async with resumed as found:
            made = await found.compact(role, focus, model=await _model_of(typed))
        handle = await opened.open(state.sessions[role])
        data, sentence = await told_compaction(handle, made, before)
    common.show({"flow": state.run.flow_id, "role": role, "session": handle.id, **data}, sentence)


async def role_compacted(
    store: Store, session: StreamId, flow: StreamId, model: str | None, focus: str | None
) -> tuple[Entry | None] | None:
    """Compact `session` if a role of `flow` owns it; otherwise, return None.

    Returns the compaction in a tuple, which contains None if there was nothing to compact.
    Raises: the errors of `Flow.compact`.
    """
    async with flows_of(store) as flows:
        try:
            state = await flows.state(flow)
        except FlowNotFound:
            return None
    role = next((role for role, known in state.sessions.items() if known == session), None)
    if role is None:
        return None
    typed = ActingOptions(model=model).typed()
    async with resumed_flow(store, state, typed, None, is_for_one_call=True) as found:
        return (await found.compact(role, focus, model=model),)


async def _model_of(typed: RunSettings) -> str | None:
    """Return the model that `typed` names for a summary; None means the role's own model.

    Raises: ConfigError.
    """
    if typed.model is not None or typed.scenario is None:
        return typed.model
    scenario = await asyncio.to_thread(scenario_in, Path(typed.scenario))
    return f"scripted:{scenario.name}"
