"""What the user said before, newest first, for the keys that recall earlier input.

Read from the log: nothing is stored a second time, and an encrypted store keeps it encrypted.
"""

from __future__ import annotations

from pathlib import Path

from perdure.client.store import Store
from perdure.session.messages import MESSAGE, TextPart

_SESSIONS = 10
_LOOKED_AT = 200
"""Messages of one session that are read for its newest user messages."""


async def earlier_inputs(store: Store, folder: Path, limit: int = 100) -> list[str]:
    """Return the newest texts that the user sent from `folder`, newest first, each once."""
    found: dict[str, None] = {}
    for info in await store.recent(_SESSIONS, cwd=folder):
        session = await store.open(info.id)
        entries = session.entries(kind=MESSAGE, newest_first=True, limit=_LOOKED_AT)
        async for entry in entries:
            if entry.is_erased or len(found) >= limit:
                continue
            message = entry.message
            if message is None or message.role != "user":
                continue
            texts = [part.text for part in message.parts if isinstance(part, TextPart)]
            if texts and texts[0].strip():
                found.setdefault(texts[0])
    return list(found)
