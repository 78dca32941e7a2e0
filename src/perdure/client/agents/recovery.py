"""Resume the turns of a store that were interrupted."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from perdure.client.agents.chat import Chat
from perdure.client.processes import this_process
from perdure.client.records.sessions import sessions_with_open_turn
from perdure.errors import LeaseHeld, PerdureError
from perdure.stores.protocol import SessionStore

_log = logging.getLogger(__name__)


async def resume_interrupted(
    store: SessionStore,
    resume: Callable[[str], Awaitable[Chat]],
    on_error: Callable[[str, PerdureError], None] | None,
) -> list[Chat]:
    """Call `resume` for each session with an open turn that no process runs; return the chats.

    Each turn has started when this returns. `on_error` gets the id and the error of a session that
    cannot be resumed; without it a warning is logged.
    """
    resumed: list[Chat] = []
    for info, holder in await sessions_with_open_turn(store, "listed"):
        if holder is not None and not holder.endswith(this_process()):
            continue
        try:
            chat = await resume(info.id)
            if chat.turn is None:
                continue  # the turn ended after the list was read
            await chat.turn.started()
        except LeaseHeld:
            continue
        except PerdureError as error:
            if on_error is not None:
                on_error(info.id, error)
            else:
                _log.warning("session %s was not resumed: %s", info.id, error)
        else:
            resumed.append(chat)
    return resumed
