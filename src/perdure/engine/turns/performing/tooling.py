"""Running the tool of an intent that is in the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from perdure.engine.hooks.hooked import HookedCall
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.inputs import ToolReturned
from perdure.engine.turns.performing.holding import held
from perdure.engine.turns.state import OpenTool
from perdure.errors import InvalidArguments, UnknownTool
from perdure.models.stream import invalid_json
from perdure.secrets.vault import Taint, Vault
from perdure.session.durable.settling import media_part
from perdure.session.media.inline import SCHEME, InlineMedia
from perdure.session.messages import MediaPart, ToolCallPart
from perdure.stores.chain import blob_hash
from perdure.tools.execute import ToolRun, failed_run, run_tool
from perdure.tools.spec import ToolCall


async def tool_outcome(
    environment: Environment, open_tool: OpenTool, is_aborted: Callable[[], bool] = lambda: False
) -> ToolReturned:
    """Run the tool and wait for its result; its failures are results too.

    `is_aborted` tells, when this is cancelled, whether the turn ends with it.
    """
    return _returned(await _run(environment, open_tool, is_aborted))


async def _run(
    environment: Environment, open_tool: OpenTool, is_aborted: Callable[[], bool]
) -> ToolRun:
    started = open_tool.started
    try:
        spec = environment.tools.get(started.tool)
    except UnknownTool as error:  # it was there when the intent was written, by another process
        return failed_run(started.tool, error)
    sent = invalid_json(ToolCallPart(started.id, started.tool, started.input))
    if sent is not None:
        reason = f"the arguments are not a JSON object: {sent[:200]}"
        return failed_run(started.tool, InvalidArguments(started.tool, reason))
    below = environment.delegation
    call = ToolCall(
        id=started.id,
        tool=started.tool,
        args=started.input,
        session_id=environment.stream,
        idempotency_key=started.idempotency_key,
        attempt=started.attempt,
        working_dir=environment.working_dir,
        permissions=environment.permissions,
        secrets=Taint(environment.vault or Vault({}, lambda account: None)),
        scratch_dir=environment.scratch_dir,
        read_media=partial(held, environment.store, environment.stream),
        invoke=None if below is None else partial(below.invoke, is_aborted=is_aborted),
    )
    hooks = environment.hooks
    if hooks is None or not (hooks.has("tool_call") or hooks.has("tool_result")):
        return await run_tool(spec, call, clock=environment.clock)
    hooked = HookedCall(spec, hooks)
    return await run_tool(hooked.spec, call, clock=environment.clock, answered=hooked.answered)


def _returned(run: ToolRun) -> ToolReturned:
    """`run` as the machine takes it; where its text was cut, the whole is kept and named."""
    text, whole = run.output.text, None
    media, contents = _settled(run.output.media)
    if run.whole is not None:
        content = run.whole.encode(errors="replace")
        whole, contents = SCHEME + blob_hash(content), (*contents, content)
        text = f"{text}\n[cut; read_media gives the whole of it: {whole}, {len(content)} bytes]"
    return ToolReturned(
        text=text,
        outcome=run.outcome,
        error=run.error,
        error_code=run.error_code,
        duration_ms=run.duration_ms,
        media=media,
        ends_session=run.output.ends_session,
        whole=whole,
        contents=contents,
        delegated=run.output.delegated,
    )


def _settled(
    media: tuple[MediaPart | InlineMedia, ...],
) -> tuple[tuple[MediaPart, ...], tuple[bytes, ...]]:
    """`media` as handles, and the contents that are to be kept under them, each once."""
    contents = dict.fromkeys(part.content for part in media if isinstance(part, InlineMedia))
    parts = (media_part(part) if isinstance(part, InlineMedia) else part for part in media)
    return tuple(parts), tuple(contents)
