"""What a store that has no file of its own gives to be repaired elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from perdure.stores.maintenance.repair import SalvagedStream
from perdure.stores.protocol import Problem


class SalvagedNamespace(msgspec.Struct, frozen=True):
    """All that can be read of a namespace; `losses` are of no stream that is among `streams`."""

    streams: Sequence[SalvagedStream]
    losses: Sequence[Problem] = ()


@runtime_checkable
class SalvageService(Protocol):
    """A store that can be read however damaged it is."""

    async def salvage_namespace(self) -> SalvagedNamespace:
        """What is left of the namespace, as of one moment; nothing of it is changed.

        Shape: in memory as a whole.
        """
        ...
