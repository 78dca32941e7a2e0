"""The `Relay` of a store that several processes share."""

from __future__ import annotations

from perdure.events.bus import LiveBus
from perdure.events.types import LiveEvent
from perdure.stores.cluster.live_receiver import LiveReceiver
from perdure.stores.cluster.live_sender import LiveSender
from perdure.stores.cluster.live_table import LiveTable


class LiveRelay:
    """Connects `bus` with the buses of the other processes that use `table`."""

    def __init__(self, bus: LiveBus, table: LiveTable) -> None:
        self._sender = LiveSender(bus, table)
        self._receiver = LiveReceiver(bus, table)
        table.attach(self._sender.told, self._receiver.told)
        self.settle = self._sender.settle
        self.closed = self._sender.closed
        self.follow = self._receiver.follow
        self.unfollow = self._receiver.unfollow
        self.call_elsewhere = self._receiver.call_elsewhere
        self.catch_up = self._receiver.catch_up
        self.ended = self._receiver.ended
        self.erased = self._receiver.erased

    def shown(self, event: LiveEvent, epoch: int) -> None:
        """Implement `Relay.shown`."""
        if event.n == 1:
            self._receiver.made_here(event.stream, event.of)
        self._sender.shown(event, epoch)

    async def aclose(self) -> None:
        """Stop passing events on."""
        await self._sender.aclose()
        await self._receiver.aclose()
