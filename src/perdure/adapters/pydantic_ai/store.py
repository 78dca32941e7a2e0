"""A `ConversationStore` of Pydantic AI in a store of perdure."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.conversation_store import (
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

import perdure
from perdure.adapters.pydantic_ai.conversations import Conversations
from perdure.adapters.store_loop import StoreLoop


class PerdureConversationStore(ConversationStore):
    """A `ConversationStore` of Pydantic AI in a store of perdure.

    `store` is a `perdure.Store`, which works only on the event loop that opened it, or a
    `perdure.blocking.Store`, which works on any event loop and thread. Each save of a conversation
    is one commit. All branches of a conversation are in one session. A fork of a conversation is a
    session that shares the entries of its origin. The scope of a conversation is the subject of its
    session. Deleting a conversation erases its messages, except those that a fork shows.
    """

    def __init__(self, store: perdure.Store | perdure.blocking.Store) -> None:
        self._loop = StoreLoop(store)
        self._conversations = Conversations(self._loop.store)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None."""
        return await self._loop.call(self._conversations.read(conversation_id))

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of conversations, newest `updated_at` first.

        If `scope` is given, only records of this scope are returned.
        """
        return await self._loop.call(self._conversations.records(scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store `record` and its new entries in one commit.

        Durable: the change is stored when this call returns.
        Raises: ConversationConflict.
        """
        work = self._conversations.write(record, new_entries, expected_revision)
        await self._loop.finish(work)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation, except the entries that a fork shows.

        Raises: ConversationConflict.
        """
        await self._loop.finish(self._conversations.delete(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return the entry with this id. Raises: LookupError."""
        return (await self.read_history(entry_id, limit=1))[0]

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the newest `limit` entries of the path to `head_id`, oldest first.

        If `limit` is None, all entries of the path are returned. If `head_id` is None, the result
        is empty. Raises: LookupError.
        """
        if head_id is None or limit == 0:
            return []
        return await self._loop.call(self._conversations.history(head_id, limit))
