"""Run the tool of an intent that is in the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from perdure.engine.hooks.wrappers import HookedCall
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.executor.tool_media import read_content
from perdure.engine.turns.inputs import ToolReturned
from perdure.engine.turns.rules.questions import args_hash
from perdure.engine.turns.state import OpenTool
from perdure.errors import EntryNotFound, UnknownTool
from perdure.models.stream import malformed_arguments
from perdure.secrets.vault import Taint, Vault
from perdure.session.ids import blob_hash
from perdure.session.media.inline import SCHEME
from perdure.session.media_storage.embedded_base64 import restore_args, stored_text
from perdure.session.media_storage.handles import stored_media
from perdure.session.messages import ToolCallPart
from perdure.tools.approval import Bound
from perdure.tools.bound_facts import bound_of, require_unchanged
from perdure.tools.execution import ToolRun, failed_run, run_tool
from perdure.tools.paths.own_places import places_of_store
from perdure.tools.spec import ToolCall, ToolOutput, ToolSpec


async def tool_outcome(
    environment: Environment,
    open_tool: OpenTool,
    agent: str = "",
    is_aborted: Callable[[], bool] = lambda: False,
) -> ToolReturned:
    """Run the tool of `agent` and return its result; a failure is also returned as a result.

    If the run is cancelled, `is_aborted` returns whether the whole turn ends.
    """
    return _tool_result(await _run(environment, open_tool, agent, is_aborted))


async def bound_now(environment: Environment, asked: ToolCallPart, agent: str) -> Bound:
    """Return the current facts about the call `asked`; an approval of the call depends on them."""
    if (refused := malformed_arguments(asked)) is not None:
        return Bound(problem=refused)
    spec = environment.tools.get(asked.name)
    args = await _whole(environment, asked.args, asked.contents)
    call = _call(environment, asked.id, asked.name, args)
    return await asyncio.to_thread(bound_of, spec, call, agent)


async def _run(
    environment: Environment, open_tool: OpenTool, agent: str, is_aborted: Callable[[], bool]
) -> ToolRun:
    started = open_tool.started
    try:
        spec = environment.tools.get(started.tool)
    except UnknownTool as error:  # it existed when another process wrote the intent
        return failed_run(started.tool, error)
    refused = malformed_arguments(ToolCallPart(started.id, started.tool, started.input))
    if refused is not None:
        return failed_run(started.tool, refused)
    below = environment.delegation
    args = await _whole(environment, started.input, started.contents)
    call = msgspec.structs.replace(
        _call(environment, started.id, started.tool, args),
        idempotency_key=started.idempotency_key,
        attempt=started.attempt,
        invoke=None if below is None else partial(below.invoke, is_aborted=is_aborted),
    )
    if started.approved is not None:
        spec = _if_unchanged(spec, started.approved, args_hash(started.input), agent)
    hooks = environment.hooks
    if hooks is None or not (hooks.has("tool_call") or hooks.has("tool_result")):
        return await run_tool(spec, call, clock=environment.clock)
    hooked = HookedCall(spec, hooks)
    return await run_tool(hooked.spec, call, clock=environment.clock, answered=hooked.apply_hooks)


async def _whole(
    environment: Environment, args: dict[str, object], handles: tuple[str, ...]
) -> dict[str, object]:
    """Return `args` with each of `handles` replaced by its bytes, unless these were erased."""
    found: dict[str, bytes] = {}
    for handle in handles:
        with contextlib.suppress(EntryNotFound):
            found[handle] = await environment.store.blob(handle.removeprefix(SCHEME))
    return restore_args(args, found) if found else args


def _call(environment: Environment, id: str, tool: str, args: Mapping[str, object]) -> ToolCall:
    return ToolCall(
        id=id,
        tool=tool,
        args=args,
        session_id=environment.stream,
        idempotency_key="",
        attempt=1,
        working_dir=environment.working_dir,
        permissions=environment.permissions,
        secrets=Taint(environment.vault or Vault({}, lambda account: None)),
        scratch_dir=environment.scratch_dir,
        closed=places_of_store(environment.store.address),
        record=environment.record,
        read_media=partial(read_content, environment.store, environment.stream),
    )


def _if_unchanged(spec: ToolSpec, approved: str, args_hash: str, agent: str) -> ToolSpec:
    """Return `spec` with a check right before the run: the approved target must be unchanged."""

    async def run(call: ToolCall) -> ToolOutput:
        bound = await asyncio.to_thread(require_unchanged, spec, call, agent, args_hash, approved)
        return await spec.run(msgspec.structs.replace(call, approved=bound.facts))

    return msgspec.structs.replace(spec, run=run)


def _tool_result(run: ToolRun) -> ToolReturned:
    """Return `run` as an input of the turn machine; if its text is cut, the full text is stored."""
    text, whole = run.output.text, None
    media, contents = stored_media(run.output.media)
    text, embedded = stored_text(text)
    error, of_error = (None, {}) if run.error is None else stored_text(run.error)
    contents = (*contents, *{**embedded, **of_error}.values())
    if run.whole is not None:
        content = run.whole.encode(errors="replace")
        whole, contents = SCHEME + blob_hash(content), (*contents, content)
        text = f"{text}\n[cut; read_media gives the whole of it: {whole}, {len(content)} bytes]"
    return ToolReturned(
        text=text,
        outcome=run.outcome,
        error=error,
        error_code=run.error_code,
        duration_ms=run.duration_ms,
        media=media,
        ends_session=run.output.ends_session,
        whole=whole,
        embedded=tuple(embedded),
        contents=contents,
        delegated=run.output.delegated,
    )
