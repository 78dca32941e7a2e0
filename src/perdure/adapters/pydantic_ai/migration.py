"""Copies conversations from any other `ConversationStore` into a store."""

from __future__ import annotations

import dataclasses

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from perdure.adapters.pydantic_ai.store import PerdureConversationStore


async def import_conversations(
    source: ConversationStore, target: PerdureConversationStore
) -> dict[str, int]:
    """Copy every conversation of `source`; return the added messages per conversation id.

    The copy preserves ids, branches, usage, scopes and waiting tool calls; forks share the messages
    of their origin. Repeating the call adds only new messages. A conversation that was continued in
    `target` since the last copy is skipped.
    Durable: each conversation is stored before the next one is read.
    """
    added: dict[str, int] = {}
    records = sorted(await source.read_records(), key=lambda record: record.updated_at)
    waiting = {record.conversation_id: record for record in records}
    while waiting:
        ready = [each for each in waiting.values() if each.forked_from not in waiting]
        for record in ready or list(waiting.values()):
            added[record.conversation_id] = await _copy(source, target, record)
            del waiting[record.conversation_id]
    return added


async def _copy(
    source: ConversationStore, target: PerdureConversationStore, record: ConversationRecord
) -> int:
    lines = [await source.read_history(tip) for tip in [*record.branches, record.head_id]]
    known = await target.read_record(record.conversation_id)
    heads = {None, *(entry.id for line in lines for entry in line)}
    if known is not None and known.head_id not in heads:
        return 0  # continued in `target`
    added = 0
    revision = None if known is None else known.revision
    for line in lines:
        new = await _missing(target, line)
        head = line[-1].id if line else None
        is_last = line is lines[-1]
        if not new and not (is_last and revision != record.revision):
            continue
        step = record if is_last else dataclasses.replace(record, head_id=head, revision=head or "")
        try:
            await target.write_record(step, new_entries=new, expected_revision=revision)
        except ConversationConflict:
            return added
        revision, added = step.revision, added + len(new)
    return added


async def _missing(
    target: PerdureConversationStore, line: list[ConversationEntry]
) -> list[ConversationEntry]:
    """Return the entries at the end of the path `line` that `target` does not contain."""
    for number, entry in enumerate(reversed(line)):
        try:
            await target.read_entry(entry.id)
        except LookupError:
            continue
        return line[len(line) - number :]
    return line
