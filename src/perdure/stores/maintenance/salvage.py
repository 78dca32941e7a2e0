"""What a store that has no file of its own gives to be repaired elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.stores.maintenance.repair import SalvagedStream
from perdure.stores.protocol import Problem


class SalvagedNamespace(msgspec.Struct, frozen=True):
    """All that can be read of a namespace; `losses` are of no stream that is among `streams`."""

    streams: Sequence[SalvagedStream]
    losses: Sequence[Problem] = ()
