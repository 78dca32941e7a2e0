"""The calls of turns on a time line, computed from the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from perdure.apps.server.values import Call, Page, Tokens, TurnView, time_of
from perdure.client.session import Session
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import entry_place
from perdure.session.ledger import (
    ModelCalled,
    ModelFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.session.messages import Usage


async def newest_turns(session: Session, last: int, before: int | None = None) -> Page[TurnView]:
    """Return the newest `last` turns of `session` that began before `before`, oldest first.

    To get earlier turns, pass `next` of the result as `before`.
    """
    begun = session.entries(
        -1 if before is None else before, kind=TurnStarted.kind, newest_first=True, limit=last + 1
    )
    starts = [entry.seq async for entry in begun]
    if not starts:
        return Page(items=[])
    first = starts[:last][-1]
    found: list[Entry] = []
    async for entry in session.entries(first - 1):
        if entry.seq == before:
            break
        found.append(entry)
    return Page(items=turns_of(found), next=str(first) if len(starts) > last else None)


def turns_of(entries: Iterable[Entry]) -> list[TurnView]:
    """Return the turns in `entries`, which are in log order."""
    turns: list[TurnView] = []
    calls: dict[tuple[int | str, int], Call] = {}
    for entry in entries:
        body = readable(entry)
        match body:
            case TurnStarted():
                calls = {}
                turns.append(_begun(entry, body))
            case ModelCalled() if turns:
                calls[entry.seq, 0] = _model_call(entry, body)
            case ToolStarted() if turns:
                calls[body.id, body.attempt] = _tool_call(entry, body, "running")
            case ModelFinished() if turns and entry.about is not None:
                key = (entry_place(entry.about)[1], 0)
                if key in calls:
                    calls[key] = _model_answered(calls[key], entry, body)
            case ToolFinished() if turns:
                key = (body.id, body.attempt)
                started = calls.get(key) or _tool_call(entry, body, "refused")
                calls[key] = _tool_returned(started, entry, body)
            case TurnFinished() if turns:
                turns[-1] = _ended(turns[-1], entry, body)
                calls = {key: _without_outcome(call) for key, call in calls.items()}
            case _:
                continue
        turns[-1] = msgspec.structs.replace(turns[-1], calls=list(calls.values()))
    return turns


def tokens_of(usage: Usage) -> Tokens:
    """Return the token counts in `usage`."""
    return Tokens(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
    )


def _begun(entry: Entry, body: TurnStarted) -> TurnView:
    return TurnView(
        seq=entry.seq,
        number=body.number,
        agent=body.agent,
        status="open",
        started_at=time_of(entry.at),
        finished_at=None,
        error=None,
        calls=[],
    )


def _ended(turn: TurnView, entry: Entry, body: TurnFinished) -> TurnView:
    return msgspec.structs.replace(
        turn, status=body.end, finished_at=time_of(entry.at), error=body.error
    )


def _without_outcome(call: Call) -> Call:
    """Return `call`, whose turn has ended; if it has no outcome, its status becomes ``unknown``."""
    return msgspec.structs.replace(call, status="unknown") if call.status == "running" else call


def _model_call(entry: Entry, body: ModelCalled) -> Call:
    return Call(
        seq=entry.seq,
        type="model",
        name=body.model,
        status="running",
        started_at=time_of(entry.at),
        finished_at=None,
        attempt=body.attempt,
    )


def _model_answered(call: Call, entry: Entry, body: ModelFinished) -> Call:
    usage = body.usage
    return msgspec.structs.replace(
        call,
        name=body.model or call.name,
        status="ok" if body.error is None else "error",
        finished_at=time_of(entry.at),
        tokens=None if usage is None else tokens_of(usage),
        cost_microcents=None if usage is None else usage.cost_microcents,
        error=body.error,
    )


def _tool_call(
    entry: Entry, body: ToolStarted | ToolFinished, status: Literal["running", "refused"]
) -> Call:
    return Call(
        seq=entry.seq,
        type="tool",
        name=body.tool,
        status=status,
        started_at=time_of(entry.at),
        finished_at=None,
        attempt=body.attempt,
        input=body.input,
    )


def _tool_returned(call: Call, entry: Entry, body: ToolFinished) -> Call:
    return msgspec.structs.replace(
        call,
        status=body.outcome,
        finished_at=time_of(entry.at),
        result=body.result,
        error=body.error,
    )
