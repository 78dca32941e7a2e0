"""The durable events of an entry, and the wire form of every event.

Each entry has one or more events, and the same entry always gives the same events. An entry of an
unknown kind gives the event ``log:entry``. If the program Relavium has the same event, the event
gets the same name and payload as in Relavium. ``docs/events.md`` lists all events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.errors import CorruptLog, UnsupportedVersion
from perdure.events.envelope import head_of
from perdure.events.plain_json import fields_of, plain
from perdure.events.types import AnyEvent, Event, LiveEvent, class_of
from perdure.secrets.mask import mask_secrets, masked_value
from perdure.session import kinds, ledger, notes
from perdure.session.argument_checks import takes_declared
from perdure.session.clock import timestamp
from perdure.session.codec import BODIES, Unknown, body_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.info import StreamKind
from perdure.session.kinds import MESSAGE
from perdure.session.messages import Usage

Payload = Mapping[str, object]
Told = tuple[str, Payload]
"""Type and payload of one event."""

_RETRYABLE = frozenset({"provider_rate_limit", "provider_unavailable", "tool_failed"})
"""Failures of turns after which a retry of the same message may succeed."""

_COMPACTING: Mapping[str, str] = {"threshold": "auto-threshold", "overflow": "auto-overflow"}
"""Maps the reason for an automatic compaction to the name that observers receive for it."""

_PREVIEWED: Mapping[str, str] = {"fs_write": "path", "process": "command", "egress": "host"}
"""Action of a tool -> name of the event field that contains the preview of the action."""

OTHER = "log:entry"
"""Type of the event for an entry that this version cannot read."""


def events_of(entry: Entry) -> tuple[Event, ...]:
    """Return the events of `entry`: at least one.

    Shape: every payload has ``entryId``. If the entry has a parent, the payload has ``parentId``.
    If the entry is about another entry, the payload has ``about``.
    """
    place = _place_of(entry)
    told = _told_by(entry)
    return tuple(
        class_of(type_)(
            stream=entry.stream,
            seq=entry.seq,
            index=index,
            type=type_,
            at=entry.at,
            payload={**place, **payload},
            has_more=index + 1 < len(told),
        )
        for index, (type_, payload) in enumerate(told)
    )


@takes_declared
def wire(event: AnyEvent, kind: StreamKind = "session") -> dict[str, object]:
    """Return `event` as JSON data; `kind` is the kind of its stream.

    Shape: every event has ``sessionId`` or ``flowId``, ``type``, ``timestamp`` and the fields of
    its payload. A durable event also has ``sequenceNumber``. A durable event has ``index`` unless
    it is the first event of its entry. A durable event has ``more`` if another event of its entry
    follows. A live event also has ``of`` and ``n``.
    """
    if isinstance(event, Event):
        head = head_of(event.stream, kind, event.type, event.at) | {"sequenceNumber": event.seq}
        if event.index:
            head["index"] = event.index
        if event.has_more:
            head["more"] = True
        return {**event.payload, **head}
    if isinstance(event, LiveEvent):
        head = head_of(event.stream, kind, event.type, event.at)
        whose = _known_payload({"nodeId": event.agent, "model": event.model})
        said = {"text": event.text}
        if event.type == "agent:token":
            said["token"] = event.text
        return {**head, "of": event.of, "n": event.n, **whose, **said}
    head = head_of(event.stream, kind, event.type, event.at)
    return {**head, "of": event.of, "n": event.n, "partial": plain(event.partial)}


def _place_of(entry: Entry) -> dict[str, object]:
    place: dict[str, object] = {"entryId": entry.id}
    if entry.lane == "tree":
        place["parentId"] = entry.parent_id
    elif entry.about is not None:
        place["about"] = entry.about
    return place


def _told_by(entry: Entry) -> list[Told]:
    try:
        body = body_of(entry)
    except (CorruptLog, UnsupportedVersion) as error:
        return [(OTHER, {"kind": entry.kind, "lane": entry.lane, "problem": error.code})]
    if entry.kind in SIMPLE and not isinstance(body, Unknown):
        return [(SIMPLE[entry.kind], fields_of(body))]
    if isinstance(body, ledger.TurnFinished):
        return turn_finished(body, entry.about)
    if entry.kind in SPECIAL:
        return SPECIAL[entry.kind](body)
    return [(OTHER, {"kind": entry.kind, "lane": entry.lane})]


# ---------------------------------------------------------------- kinds with a payload of their own


def _on_compaction(body: kinds.Compaction) -> list[Told]:
    payload = fields_of(body)
    for name in ("usage", "retained", "kept", "ownSummary"):
        payload.pop(name, None)
    payload["reason"] = _COMPACTING.get(body.reason, body.reason)
    kept = body.kept if body.retained is None else len(body.retained)
    if kept is not None:
        payload["keptMessageCount"] = kept
    return [("session:compacted", payload | _tokens_used(body.usage))]


def _branch_summarized(body: kinds.BranchSummary) -> list[Told]:
    payload = fields_of(body)
    payload.pop("usage", None)
    return [("session:branch_summarized", payload | _tokens_used(body.usage))]


def _on_label(body: notes.Label) -> list[Told]:
    return [("session:labeled", {"text": body.text})]


def _info_changed(body: notes.SessionInfoChanged) -> list[Told]:
    told: list[Told] = []
    if isinstance(body.title, str | None):
        told.append(("session:renamed", {"title": body.title}))
    if isinstance(body.cwd, str):
        told.append(("session:moved", {"cwd": body.cwd}))
    return told or [(OTHER, {"kind": body.kind, "lane": body.lane})]


def _on_start(body: notes.SessionStarted) -> list[Told]:
    agent = body.agent or {}
    payload: dict[str, object] = {
        "agentRef": agent.get("id") or agent.get("name"),
        "model": agent.get("model"),
        "agent": body.agent,
        "context": body.workspace,
        "systemPrompt": body.system_prompt,
    }
    return [("session:started", _known_payload(payload))]


def _on_export(body: notes.SessionExported) -> list[Told]:
    payload = {"workflowPath": body.path, "format": body.format, "dialect": body.dialect}
    return [("session:exported", _known_payload(payload))]


def _turn_started(body: ledger.TurnStarted) -> list[Told]:
    payload: dict[str, object] = {
        "turnNumber": body.number,
        "agentRef": body.agent,
        "base": body.base,
        "onInterrupt": body.on_interrupt,
        "contextTokens": body.context_tokens,
    }
    return [("session:turn_started", _known_payload(payload))]


def _model_called(body: ledger.ModelCalled) -> list[Told]:
    told: list[Told] = [("agent:model_called", _sign(fields_of(body)))]
    if body.reason is not None:
        told.append(("session:compacting", {"reason": _COMPACTING.get(body.reason, body.reason)}))
    return told


def turn_finished(body: ledger.TurnFinished, turn: EntryId | None) -> list[Told]:
    """Return the events of the entry that ends the turn `turn`; `body` is the entry's body."""
    payload: dict[str, object] = {
        "stopReason": body.end,
        **_tokens_used(body.usage, body.model),
    }
    if body.failure is not None or body.error is not None:
        code = body.failure or "internal"
        is_retryable = code in _RETRYABLE
        error = {"code": code, "message": body.error or code, "retryable": is_retryable}
        payload["error"] = error if turn is None else error | {"correlationId": turn}
    is_cancelled = body.end == "cancelled"
    return [("session:cancelled" if is_cancelled else "session:turn_completed", payload)]


def _model_finished(body: ledger.ModelFinished) -> list[Told]:
    payload = fields_of(body)
    payload.pop("usage", None)
    payload.pop("spent", None)
    told: list[Told] = [("agent:model_finished", _sign(payload))]
    if body.usage is not None:
        told.append(("cost:updated", _cost_updated(body, body.usage)))
    return told


def _cost_updated(body: ledger.ModelFinished, usage: Usage) -> Payload:
    cost: dict[str, object] = {
        "nodeId": body.agent,
        "model": body.model,
        "attemptNumber": body.attempt,
        **fields_of(usage),
        "priced": usage.cost_microcents is not None,
        "isEstimated": body.is_estimated,
    }
    if body.spent is not None:
        cost["cumulativeCostMicrocents"] = body.spent.cost_microcents
        cost["unpricedCalls"] = body.spent.unpriced_calls
    return _known_payload(cost)


def _tool_started(body: ledger.ToolStarted) -> list[Told]:
    payload: dict[str, object] = {
        "nodeId": body.agent,
        "model": body.model,
        "callId": body.id,
        "toolId": body.tool,
        "toolInput": masked_value(body.input),
        "attemptNumber": body.attempt,
        "effect": body.effect,
        "calledAt": timestamp(body.called_at),
    }
    return [("agent:tool_call", _known_payload(payload))]


def _tool_finished(body: ledger.ToolFinished) -> list[Told]:
    payload: dict[str, object] = {
        "nodeId": body.agent,
        "callId": body.id,
        "toolId": body.tool,
        "toolInput": None if body.input is None else masked_value(body.input),
        "calledAt": None if body.called_at is None else timestamp(body.called_at),
        "attemptNumber": body.attempt,
        "success": body.succeeded,
        "isError": not body.succeeded,
        "outcome": body.outcome,
        "outputSummary": mask_secrets(body.error or body.summary or "")[:500],
        "resultId": body.result,
        "errorCode": body.error_code,
        "durationMs": body.duration_ms,
        "childSessionId": None if body.delegated is None else body.delegated.session,
    }
    return [("agent:tool_result", _known_payload(payload))]


def _on_trim(body: ledger.Trimmed) -> list[Told]:
    counts = {"droppedMessageCount": body.dropped, "keptMessageCount": body.kept}
    why = {"limit": body.limit, "limitTokens": body.tokens}
    more = {"recalledLeftOutCount": body.recalled} if body.recalled else {}
    told = {name: value for name, value in why.items() if value is not None}
    return [("session:trimmed", {"reason": "auto-fallback", **counts, **told, **more})]


def _question(body: notes.Question) -> list[Told]:
    told: list[Told] = [("inbox:question", _sign(fields_of(body)))]
    if body.topic == "approval" and body.action is not None:
        asked: dict[str, object] = {
            "nodeId": body.agent,
            "callId": body.call_id,
            "toolId": body.tool,
            "action": body.action,
            "preview": _preview(body),
        }
        told.append(("agent:approval_requested", _known_payload(asked)))
    return told


def _preview(body: notes.Question) -> dict[str, object]:
    name = _PREVIEWED.get(body.action or "")
    return {} if name is None or body.preview is None else {name: body.preview}


def _tokens_used(usage: Usage | None, model: str | None = None) -> dict[str, object]:
    if usage is None:
        return {}
    used = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    told: dict[str, object] = {"input": used, "output": usage.output_tokens, "model": model}
    return {"tokensUsed": _known_payload(told)}


def _sign(payload: dict[str, object]) -> dict[str, object]:
    """Rename `agent` to ``nodeId`` in `payload`, and add `attempt` as ``attemptNumber``."""
    if "agent" in payload:
        payload["nodeId"] = payload.pop("agent")
    if "attempt" in payload:
        payload["attemptNumber"] = payload["attempt"]
    return payload


def _known_payload(payload: Payload) -> Payload:
    return {name: value for name, value in payload.items() if value is not None}


# ---------------------------------------------------------------- each kind is in one table

SIMPLE: Mapping[str, str] = {
    MESSAGE: "agent:message",
    **{kind: body.event for kind, body in BODIES.items() if body.event},
}
"""Kind of an entry -> type of its event, if the payload is exactly the fields of the body."""

# Each function takes the body class of its kind, which the type system cannot express.
SPECIAL: Mapping[str, Callable[[Any], list[Told]]] = {
    kinds.Compaction.kind: _on_compaction,
    kinds.BranchSummary.kind: _branch_summarized,
    notes.Label.kind: _on_label,
    notes.SessionInfoChanged.kind: _info_changed,
    notes.SessionStarted.kind: _on_start,
    notes.SessionExported.kind: _on_export,
    notes.Question.kind: _question,
    ledger.TurnStarted.kind: _turn_started,
    ledger.ModelCalled.kind: _model_called,
    ledger.ModelFinished.kind: _model_finished,
    ledger.ToolStarted.kind: _tool_started,
    ledger.ToolFinished.kind: _tool_finished,
    ledger.Trimmed.kind: _on_trim,
}
"""Kind of an entry -> function that returns its events, if a payload differs from the body."""

TYPES = frozenset(
    {
        *SIMPLE.values(),
        *("agent:approval_requested", "agent:model_called", "agent:model_finished"),
        *("agent:tool_call", "agent:tool_result", "cost:updated", "inbox:question", OTHER),
        *("session:branch_summarized", "session:compacted", "session:compacting"),
        *("session:exported", "session:labeled", "session:moved", "session:renamed"),
        *("session:started", "session:trimmed", "session:turn_completed", "session:turn_started"),
    }
)
"""The types of durable events."""
