"""Convert values of the library to values of the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from perdure.apps.server.values import (
    CallStatus,
    EntryView,
    MessageView,
    SessionView,
    Value,
    time_of,
    time_or_none,
)
from perdure.apps.session_rows import SessionState, agent_of, states_of
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.events.wire import wire
from perdure.session.entries import Entry
from perdure.session.info import SessionInfo
from perdure.session.messages import Message

V = TypeVar("V", bound=Value)


def view_of(view: type[V], value: object, **own: object) -> V:
    """Return a `view` with the fields `own`; all other fields are copied from `value` by name."""
    copied = {name: getattr(value, name) for name in view.__struct_fields__ if name not in own}
    return view(**copied, **own)


def session_view(
    info: SessionInfo,
    state: SessionState,
    *,
    agent: str | None = None,
    handle: Session | None = None,
) -> SessionView:
    """Return `info` as a value of the API; without `handle`, its head and leaf are None."""
    return view_of(
        SessionView,
        info,
        state=state,
        agent=agent,
        folder=info.cwd,
        created_at=time_of(info.created_at),
        updated_at=time_of(info.updated_at),
        head=None if handle is None else handle.head,
        leaf=None if handle is None else handle.leaf,
    )


async def whole_view(store: Store, session: Session) -> SessionView:
    """Return `session` with its agent, head and leaf."""
    info = await session.info()
    states = await states_of(store, [info])
    agent = await agent_of(store, session.id)
    return session_view(info, states[info.id], agent=agent, handle=session)


def entry_view(entry: Entry) -> EntryView:
    """Return `entry` as a value of the API."""
    shown = cast("dict[str, Any]", wire(entry))
    return view_of(EntryView, entry, at=time_of(entry.at), body=shown["body"])


def message_view(
    entry: Entry,
    message: Message,
    label: str | None = None,
    *,
    is_pinned: bool = False,
    siblings: Sequence[str] = (),
    calls: Mapping[str, CallStatus] | None = None,
) -> MessageView:
    """Return the message in `entry` as a value of the API."""
    shown = cast("dict[str, Any]", wire(message))
    return MessageView(
        id=entry.id,
        seq=entry.seq,
        parent_id=entry.parent_id,
        at=time_of(entry.at),
        role=message.role,
        parts=shown["parts"],
        text=message.text,
        model=message.model,
        author=message.author,
        said_at=time_or_none(message.said_at),
        error=shown.get("error"),
        label=label,
        is_pinned=is_pinned,
        siblings=list(siblings),
        calls=dict(calls or {}),
    )
