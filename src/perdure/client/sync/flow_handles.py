"""The handles of flows in `perdure.blocking`, without async.

Type checkers read ``flow_handles.pyi``, which is generated.

The handles of flows are in a module of their own, so that only programs that use flows load the
flow code.
"""

from __future__ import annotations

from perdure.client.flows.feeds import RoleFeed as AsyncRoleFeed
from perdure.client.flows.flow import Flow as AsyncFlow
from perdure.client.flows.flows import Flows as AsyncFlows
from perdure.client.sync.handle import Handle


class RoleFeed(Handle[AsyncRoleFeed], of=AsyncRoleFeed):
    """`perdure.client.flows.feeds.RoleFeed` without async."""


class Flow(Handle[AsyncFlow], of=AsyncFlow):
    """`perdure.client.flows.flow.Flow` without async."""


class Flows(Handle[AsyncFlows], of=AsyncFlows, made_from="runtime"):
    """`perdure.client.flows.flows.Flows` without async."""
