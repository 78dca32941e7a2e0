"""The WebSocket for flows: a client follows one flow at a time and sends decisions on this flow.

Messages for a client are read from the log, starting at the client's last position. A slow client
does not delay other clients. If the client missed pieces of an answer, it gets the whole text so
far instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

import msgspec

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.flows import socket_messages as messages
from perdure.apps.server.flows.feeds import read_feed
from perdure.apps.server.flows.inputs import role_for
from perdure.apps.server.flows.runs import FlowRuns
from perdure.apps.server.flows.states import shown, summaries
from perdure.apps.server.problems import known
from perdure.apps.server.streams import with_pauses
from perdure.client.flows.flow import Flow
from perdure.client.watch import Watch
from perdure.errors import QuestionNotFound
from perdure.events.types import AnyEvent, Event, LiveEvent
from perdure.events.wire import wire
from perdure.secrets.mask import mask_secrets
from perdure.session.ids import StreamId, entry_place

QUIET_S = 0.03
"""The state and the feeds are sent after this time without an event."""

FEED_ITEMS = 300

MAX_MESSAGE_BYTES = 2 * 1024 * 1024
"""Maximum size of a message from a client, in UTF-8."""


class MessageTooLong(Exception):
    """A client sent a message of more than `MAX_MESSAGE_BYTES`."""


class Socket(Protocol):
    """A connected WebSocket."""

    async def receive_text(self) -> str:
        """Return the next message.

        Raises: an error of the server library if the client has disconnected.
        """
        ...

    async def send_text(self, data: str) -> None:
        """Send a message."""
        ...


class FlowSocket:
    """The WebSocket connection of one caller."""

    def __init__(self, socket: Socket, caller: Caller, runs: FlowRuns) -> None:
        self._socket = socket
        self._caller = caller
        self._runs = runs
        self._sending = asyncio.Lock()
        self._flow: Flow | None = None
        self._following: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Answer messages until the client disconnects.

        Raises: MessageTooLong if a message of the client is too long; the errors of
        `Socket.receive_text`.
        """
        self._caller.require_all()
        found = await summaries(self._runs, self._caller.store)
        await self._send(messages.FlowSummaries(flows=found))
        try:
            while True:
                data = await self._socket.receive_text()
                if len(data.encode(errors="replace")) > MAX_MESSAGE_BYTES:
                    raise MessageTooLong
                await self._answer(data)
        finally:
            await self._leave()

    async def _answer(self, data: str) -> None:
        """Execute the message in `data`; if it fails, send an error message."""
        id: str | None = None
        try:
            message = messages.read(data)
            id = message.id
            await self._carry_out(message)
        except msgspec.DecodeError as error:
            await self._send(messages.Failed(code="invalid_request", message=str(error)))
        except Exception as error:  # noqa: BLE001 - the socket stays open, whatever it is
            await self._send(_failed(error, id))

    async def _carry_out(self, message: messages.ClientMessage) -> None:
        match message:
            case messages.OpenFlow():
                await self._follow(await self._open(message.flow_id))
            case messages.ResumeFlow():
                self._caller.require("write")
                await self._open(message.flow_id)
                await self._follow(await self._runs.ensure(message.flow_id))
            case (
                messages.StartFlow()
                | messages.StartTakeover()
                | messages.StartGreenfield()
                | messages.StartUpdate()
            ):
                self._caller.require("admin")
                new = msgspec.structs.replace(message.flow, mode=message.mode)
                started = await self._runs.start(new)
                await self._follow(await self._runs.ensure(started.id))
            case _:
                self._caller.require("write")
                await self._decide(self._followed(), message)
                await self._runs.go_on(self._followed().id)

    async def _open(self, id: str) -> Flow:
        """Return a flow of the store. Raises: FlowNotFound."""
        await self._runs.flows.state(id)
        return self._runs.flows.look(StreamId(id))

    def _followed(self) -> Flow:
        if self._flow is None:
            raise ValueError("open a flow first: open_flow")
        return self._flow

    async def _decide(self, flow: Flow, message: messages.Deciding) -> None:
        by = self._caller.name
        match message:
            case messages.StopTurn():
                await flow.stop(message.target, by=by)
            case messages.HumanInput():
                await flow.reply(message.text, message.to, by=by)
            case messages.ImprovementInput():
                await flow.reply(message.text, message.role, by=by)
            case messages.HandoffApproval(decision="approve"):
                await flow.approve(message.node, by=by)
            case messages.HandoffApproval():
                await flow.decline(message.node, message.note, by=by)
            case messages.ImprovementChoice():
                await flow.choose_improvement(message.mode, by=by)
            case messages.FeedbackChoice():
                await flow.decide_feedback(is_granted=message.is_granted, by=by)
            case _:
                await self._change(flow, message)

    async def _change(self, flow: Flow, message: messages.Changing) -> None:
        by = self._caller.name
        match message:
            case messages.CompactContext():
                await (await self._runs.flows.open(flow.id)).compact(message.role, message.focus)
            case messages.ConsentResponse():
                asked = message.question
                if _role_in(flow, entry_place(asked)[0]) is None:
                    raise QuestionNotFound(asked)
                await self._caller.store.answer(asked, message.answer, by=by, note=message.note)
            case messages.SetConsent():
                self._caller.require(role_for(message.mode))
                await flow.consent(message.mode, by=by)
            case messages.ConfigureRole():
                await flow.configure(
                    message.role,
                    model=message.model,
                    skills=message.skills,
                    tools=message.tools,
                    by=by,
                )

    # -- what the client gets

    async def _follow(self, flow: Flow) -> None:
        """Send the whole state of `flow`, then its changes.

        The previous flow is no longer followed.
        """
        await self._leave()
        position = await self._caller.store.backend.position()
        watch = self._caller.store.watch(position)  # before the replay: nothing is missed between
        self._flow = flow
        followed = _Followed(flow, self._caller, self._runs, self._send)
        await followed.send_changes()
        self._following = asyncio.create_task(self._pass_on(followed, watch))

    async def _pass_on(self, followed: _Followed, watch: Watch) -> None:
        try:
            await followed.follow(watch)
        except Exception as error:  # noqa: BLE001 - the client opens the flow again
            with contextlib.suppress(Exception):  # it may have left
                await self._send(_failed(error, None))
        finally:
            await watch.aclose()

    async def _leave(self) -> None:
        task, self._following, self._flow = self._following, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _send(self, message: messages.FromServer) -> None:
        async with self._sending:
            await self._socket.send_text(messages.written(message))


_Send = Callable[[messages.FromServer], Awaitable[None]]


class _Followed:
    """The flow that a client follows, and the position up to which the client got the feeds."""

    def __init__(self, flow: Flow, caller: Caller, runs: FlowRuns, send: _Send) -> None:
        self._flow = flow
        self._caller = caller
        self._runs = runs
        self._send = send
        self._cursors: dict[str, str | None] = {}
        self._saying: set[tuple[StreamId, int]] = set()
        """The calls whose answers have begun, by stream and seq."""

    async def follow(self, watch: Watch) -> None:
        """Send the events of `watch` that belong to the flow, and the state changes they cause."""
        is_due = False
        pausing = with_pauses(watch, lambda: QUIET_S if is_due else None)
        async with contextlib.aclosing(pausing) as events:
            async for event in events:
                if event is None:
                    await self.send_changes()
                    is_due = False
                elif (role := _role_in(self._flow, event.stream)) is not None:
                    await self._tell(event, role)
                    is_due = is_due or isinstance(event, Event)

    async def send_changes(self) -> None:
        """Send the state of the flow, and the items of its feeds that are new for the client."""
        view = await shown(self._flow, self._runs)
        await self._send(messages.FlowStateMessage(flow=view))
        for each in view.roles:
            has_more = each.session is not None
            while has_more:
                page = await read_feed(
                    self._caller.store,
                    self._flow.id,
                    each.role,
                    self._cursors.get(each.role),
                    FEED_ITEMS,
                )
                self._cursors[each.role] = page.cursor
                has_more = page.has_more
                if page.items:
                    await self._send(
                        messages.FeedReplay(role=each.role, items=page.items, has_more=has_more)
                    )

    async def _tell(self, event: AnyEvent, role: str) -> None:
        if isinstance(event, Event):
            if event.stream == self._flow.id:
                await self._send(messages.OperatorEvent(event=wire(event, "flow")))
                return
            if event.type == "agent:model_finished":
                self._saying = {call for call in self._saying if call[0] != event.stream}
            message = _of_session(event, role)
            if message is not None:
                await self._send(message)
            return
        call = (event.stream, event.of)
        if not isinstance(event, LiveEvent):
            self._saying.add(call)
            await self._send(messages.ReceivingResponse(role=role, text=event.partial.text))
        elif event.type == "agent:token":
            if call not in self._saying:
                self._saying.add(call)
                await self._send(messages.ReceivingResponse(role=role))
            await self._send(messages.OutputText(role=role, text=event.text))


def _failed(error: Exception, id: str | None) -> messages.Failed:
    found = known(error)
    return messages.Failed(code=found.code, message=mask_secrets(str(found)), id=id)


def _of_session(event: Event, role: str) -> messages.FromServer | None:
    """Return the client's message about a role's event; None if only the feed has the event."""
    match event.type:
        case "agent:model_called":
            return messages.RequestSent(role=role)
        case "agent:model_finished":
            return messages.ResponseEnd(role=role)
        case "agent:message" if event.payload.get("role") == "user":
            return messages.InputText(role=role, text=_text_of(event))
        case _:
            return None


def _text_of(event: Event) -> str:
    parts = cast("list[dict[str, object]]", event.payload.get("parts") or [])
    return "".join(str(part.get("text", "")) for part in parts)


def _role_in(flow: Flow, stream: StreamId) -> str | None:
    """Return the role whose session is `stream`; "" for the flow itself, None for other streams."""
    if stream == flow.id:
        return ""
    name, separator, role = stream.partition(f"{flow.id}__")
    return role if separator and not name and role else None
