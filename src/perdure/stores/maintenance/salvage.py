"""The readable data of a damaged namespace, for a repair into another store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.stores.maintenance.repair import SalvagedStream
from perdure.stores.protocol import Problem


class SalvagedNamespace(msgspec.Struct, frozen=True):
    """The readable streams of a namespace; `losses` are losses outside of `streams`."""

    streams: Sequence[SalvagedStream]
    losses: Sequence[Problem] = ()
