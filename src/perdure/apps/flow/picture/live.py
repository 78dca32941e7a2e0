"""``--watch``: redraw the graph of a flow at each change, or print a line per change.

Everything shown is read from the log, so any process can run the flow.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress

from rich.live import Live
from rich.text import Text

from perdure.apps.flow.picture.description import feed_lines, newest_words, picture, wait_data
from perdure.apps.flow.picture.render import overlaid, standing
from perdure.apps.terminal.output import out_style, show, show_json, width
from perdure.apps.terminal.style import Style
from perdure.apps.terminal.text import safe
from perdure.client.flows.feeds import Feeds
from perdure.client.flows.flow import Flow
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.flows.feed import FeedItem, FeedPoint, feed_after
from perdure.session.flows.fold import flow_state, state_after
from perdure.session.flows.run import FlowState

PAUSE_S = 0.1
"""Minimum time between two pictures. Units: seconds."""


class Followed:
    """The state of a flow and the feeds of its roles, read incrementally."""

    def __init__(self, store: Store, flow: Flow) -> None:
        self.flow = flow
        self._backend = store.backend
        self._feeds = Feeds(store.backend, flow.id)
        self._known: FlowState | None = None
        self._points: dict[str, FeedPoint] = {}
        self._items: dict[str, dict[str, FeedItem]] = {}

    async def read(self, state: FlowState) -> list[FeedItem]:
        """Return the new and changed items in the feeds of all roles, in order."""
        found: dict[str, FeedItem] = {}
        for role, (entry, body) in await self._feeds.log_of_all(state.sessions, self._points):
            point, items = feed_after(self._points.get(role, FeedPoint(role)), entry, body)
            self._points[role] = point
            found.update((item.id, item) for item in items)
            self._items.setdefault(role, {}).update((item.id, item) for item in items)
        return [*found.values()]

    async def passed_states(self, state: FlowState) -> list[FlowState]:
        """Return the states of the flow since the last call, oldest first, up to `state`."""
        known, backend = self._known, self._backend
        entries = await backend.entries(self.flow.id, after=-1 if known is None else known.head)
        states: list[FlowState] = []
        for entry in entries:
            if entry.seq > state.head:
                break
            body = body_of(entry)
            known = (
                flow_state([(entry, body)]) if known is None else state_after(known, entry, body)
            )
            states.append(known)
        self._known = known
        return states[:-1]

    async def draw(self, state: FlowState, style: Style) -> Iterator[str]:
        """Read the feeds, and format the flow in `state` with the newest words of each role."""
        said = await self.newest_words(state)
        waiting = await self.flow.waiting()
        return picture(overlaid(state, waiting), waiting, style, width(), said)

    async def newest_words(self, state: FlowState) -> dict[str, str]:
        """Read the feeds, and return the newest text of each role."""
        await self.read(state)
        return {role: newest_words([*items.values()]) for role, items in self._items.items()}


async def watch_flow(
    store: Store, flow: Flow, *, as_json: bool, is_ended: Callable[[], bool]
) -> None:
    """Show `flow` until it is completed or `is_ended` returns True."""
    followed = Followed(store, flow)
    if as_json or not sys.stdout.isatty():
        await _as_lines(store, followed, is_ended, as_json=as_json)
    else:
        await _in_place(store, followed, is_ended)


async def _in_place(store: Store, followed: Followed, is_ended: Callable[[], bool]) -> None:
    style = out_style()  # evaluated now: rich replaces stdout while it draws
    live = Live(
        auto_refresh=False,
        vertical_overflow="crop",
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        async with aclosing(_states(store, followed.flow, is_ended)) as states:
            async for state in states:
                drawn = await followed.draw(state, style)
                live.update(Text.from_ansi("\n".join(drawn)), refresh=True)
        live.vertical_overflow = "visible"  # the final picture is complete
        live.refresh()


async def _as_lines(
    store: Store, followed: Followed, is_ended: Callable[[], bool], *, as_json: bool
) -> None:
    before: Mapping[str, str] = {}
    async with aclosing(_states(store, followed.flow, is_ended)) as states:
        async for state in states:
            _tell_items(await followed.read(state), as_json=as_json)
            # A poll can be late: print every state since the last one.
            passed = await followed.passed_states(state)
            seen = overlaid(state, await followed.flow.waiting())
            for each in (*passed, seen):
                now = {node.id: standing(each, node) for node in each.graph.nodes}
                changed = {id: at for id, at in now.items() if before.get(id, "pending") != at}
                _tell_changes(each.run.status, changed, as_json=as_json)
                before = now
    if as_json:
        for each in await followed.flow.waiting():
            show_json({"waiting": wait_data(followed.flow.id, each)}, is_flushed=True)


def _tell_items(items: Iterable[FeedItem], *, as_json: bool) -> None:
    for item in items:
        if item.type == "tool":
            continue  # its outcome was printed
        if as_json:
            show_json(item, is_flushed=True)
            continue
        role = item.id.rpartition("_")[0]
        for line in feed_lines([item], out_style(), width() - len(role) - 2):
            show(f"{safe(role)}  {line}", is_flushed=True)


def _tell_changes(status: str, changed: Mapping[str, str], *, as_json: bool) -> None:
    if as_json and changed:
        show_json({"status": status, "nodes": changed}, is_flushed=True)
    elif changed:
        told = ", ".join(f"{id} {stands}" for id, stands in changed.items())
        show(f"[{status.replace('_', ' ')}] {told}", is_flushed=True)


async def _states(
    store: Store, flow: Flow, is_ended: Callable[[], bool]
) -> AsyncGenerator[FlowState]:
    """Yield the state of the flow now, after each change, and at the end."""
    async with aclosing(changes_of(store)) as changes:
        async for _ in changes:
            was_ended = is_ended()
            state = await flow.state()
            yield state
            if was_ended or state.run.status == "completed":
                return


async def changes_of(store: Store) -> AsyncGenerator[None]:
    """Yield immediately, after each change of the store, and after `PAUSE_S` without a change."""
    changes = store.backend.changes()
    changed: asyncio.Future[None] = asyncio.ensure_future(anext(changes))
    try:
        while True:
            yield
            await asyncio.wait((changed,), timeout=PAUSE_S)
            if changed.done():
                changed = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(PAUSE_S / 2)
    finally:
        changed.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await changed
