"""Roles of a flow that cannot continue, because their session was erased or removed."""

from __future__ import annotations

from perdure.errors import ConfigError, SessionNotFound
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.stores.session_store import SessionStore


async def lost_roles(store: SessionStore, state: FlowState) -> dict[str, str]:
    """Map each role instance whose session was erased or removed to the reason, as a text."""
    whys = {role: await why_lost(store, id) for role, id in state.sessions.items()}
    return {role: why for role, why in whys.items() if why is not None}


async def require_there(store: SessionStore, session: StreamId) -> None:
    """Check the session of a role. Raises: ConfigError if the session was erased or removed."""
    why = await why_lost(store, session)
    if why is not None:
        raise ConfigError(why)


async def why_lost(store: SessionStore, session: StreamId) -> str | None:
    """Return why the role with the session `session` cannot continue; None if it can continue."""
    try:
        if (await store.state(session)).info.status != "erased":
            return None
        what = "was erased"
    except SessionNotFound:
        what = "is not in the store any more"
    return f"its session {session} {what}, so it cannot continue in this flow; begin a new flow"
