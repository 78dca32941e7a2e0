"""Collect the tool calls of sessions from their logs: tool, input and outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from perdure.client.records.copies import copied_entries
from perdure.client.records.sessions import chosen_sessions, own_entries
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import SessionInfo
from perdure.session.ledger import ToolFinished, ToolStarted
from perdure.session.messages import Message, ToolResultPart
from perdure.session.notes import is_copy
from perdure.session.records import ToolCallRecord
from perdure.stores.session_store import SessionStore


class ToolCallFold:
    """Collects the tool calls of one session in `records`, from its entries in order.

    Without `with_copies`, entries that were imported as copies of another session are skipped.
    """

    def __init__(self, *, with_copies: bool = True) -> None:
        self._with_copies = with_copies
        self.records: list[ToolCallRecord] = []
        self._newest: dict[str, int] = {}
        """Call id -> index of its newest record, because models can use an id again."""

    def add(self, entries: Iterable[Entry]) -> None:
        """Add `entries`; they must follow the entries added before."""
        for entry in entries:
            if entry.kind not in _KINDS or (not self._with_copies and is_copy(entry.body)):
                continue
            body = readable(entry)
            if isinstance(body, Message):
                self._add_message(entry, body)
            elif isinstance(body, ToolStarted):
                self._start(entry, body)
            elif isinstance(body, ToolFinished):
                self._finish(entry, body)

    def _add_message(self, entry: Entry, message: Message) -> None:
        for call in message.tool_calls:
            self._put(_new(entry, call.id, call.name, call.args, entry.at))
        for part in message.parts:
            place = self._newest.get(part.call_id) if isinstance(part, ToolResultPart) else None
            if place is None or not isinstance(part, ToolResultPart):
                continue
            record = msgspec.structs.replace(self.records[place], output=part.text)
            if record.outcome is None:
                error = part.text if part.is_error else None
                record = msgspec.structs.replace(record, success=not part.is_error, error=error)
            self.records[place] = record

    def _start(self, entry: Entry, body: ToolStarted) -> None:
        record = _new(entry, body.id, body.tool, body.input, body.called_at)
        place = self._newest.get(body.id)
        if place is None or body.attempt > 1:
            self._put(record)
        else:
            self.records[place] = record

    def _finish(self, entry: Entry, body: ToolFinished) -> None:
        place = self._newest.get(body.id)
        if place is None:
            place = self._put(_new(entry, body.id, body.tool, {}, entry.at))
        record = self.records[place]
        self.records[place] = msgspec.structs.replace(
            record,
            input=record.input if body.input is None else body.input,
            called_at=record.called_at if body.called_at is None else body.called_at,
            success=body.succeeded,
            outcome=body.outcome,
            error=body.error,
            duration_ms=body.duration_ms,
        )

    def _put(self, record: ToolCallRecord) -> int:
        self._newest[record.id] = len(self.records)
        self.records.append(record)
        return len(self.records) - 1


_KINDS = frozenset(("message", ToolStarted.kind, ToolFinished.kind))


def _new(
    entry: Entry, id: str, name: str, given: Mapping[str, object], called_at: int
) -> ToolCallRecord:
    return ToolCallRecord(
        id=id,
        name=name,
        input=given,
        output=None,
        success=None,
        error=None,
        called_at=called_at,
        duration_ms=None,
        session=entry.stream,
        entry_id=entry.id,
    )


async def calls_of_session(
    store: SessionStore, info: SessionInfo, *, with_copies: bool = True
) -> list[ToolCallRecord]:
    """Return the tool calls in the session's own log, oldest first."""
    fold = ToolCallFold(with_copies=with_copies)
    copied = 0 if with_copies else await copied_entries(store, info)
    async for page in own_entries(store, info.id, copied - 1):
        fold.add(page)
    return fold.records


async def newest_calls(
    store: SessionStore,
    session: StreamId | None,
    tool: str | None,
    *,
    failed: bool | None,
    last: int | None,
) -> list[ToolCallRecord]:
    """Return the newest `last` matching calls, oldest first.

    If `session` is None, the calls of all sessions are returned.
    """
    found: list[ToolCallRecord] = []

    async def add(info: SessionInfo) -> None:
        calls = await calls_of_session(store, info, with_copies=session is not None)
        found.extend(each for each in calls if _fits(each, tool, failed=failed))
        found.sort(key=lambda each: each.called_at)
        if last is not None:
            del found[: max(0, len(found) - last)]

    if last == 0:
        return found
    async for info in chosen_sessions(store, session):
        is_full = last is not None and len(found) == last
        if is_full and info.updated_at < found[0].called_at:
            break  # no call of this session, or of those after it, is newer
        await add(info)
    return found


def _fits(call: ToolCallRecord, tool: str | None, *, failed: bool | None) -> bool:
    is_failed = failed is None or (call.success is not None and call.success is not failed)
    return is_failed and tool in (None, call.name)
