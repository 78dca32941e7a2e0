"""Copies sessions from another session service of the ADK."""

from __future__ import annotations

from google.adk.sessions import BaseSessionService

from perdure.adapters.google_adk.session_service import PerdureSessionService


async def copy_sessions(
    source: BaseSessionService,
    target: PerdureSessionService,
    app_name: str,
    user_id: str | None = None,
) -> dict[tuple[str, str], int]:
    """Copy sessions of one user or all; return the number of copied events per (user, session).

    `source` is the service that stores the sessions, such as ``SqliteSessionService("adk.db")`` or
    ``DatabaseSessionService(url)`` for SQLite, PostgreSQL and MySQL; the copy does not change
    `source`. Repeating a call copies only new events. The call also copies new state of the
    sessions, the users and the app. Durable: the change is stored when this call returns.
    """
    listed = await source.list_sessions(app_name=app_name, user_id=user_id)
    copied: dict[tuple[str, str], int] = {}
    for each in listed.sessions:
        theirs = await source.get_session(
            app_name=app_name, user_id=each.user_id, session_id=each.id
        )
        if theirs is not None:  # else deleted in the meantime
            copied[each.user_id, each.id] = await target.add_copy(theirs)
    return copied
