"""Park nodes and roles that cannot continue until a person answers.

If a node with a person's reply could not begin, the reply stays queued, so that another process can
begin the node. This process tries the node again only after the reply or the configuration of the
node's role has changed.
"""

from __future__ import annotations

import msgspec

from perdure.engine.flows.journal import Journal
from perdure.engine.flows.rules.improvement import RoleWork
from perdure.engine.flows.rules.parts import NodePart, TurnPart
from perdure.engine.flows.rules.ready_nodes import Work
from perdure.session.flows.kinds import ImprovementParked, NodeParked
from perdure.session.flows.run import FlowState, RoleConfiguration

Parked = NodeParked | ImprovementParked
_Attempt = tuple[str | None, RoleConfiguration | None]
"""Identifies an attempt to begin work: a person's reply, and the configuration of the role."""


class ParkedWork:
    """Parks nodes and roles of one flow, and remembers work that this process could not begin."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._unable: dict[str, _Attempt] = {}
        """Maps each node or role that this process could not begin to the failed attempt."""

    def is_unable(self, state: FlowState, work: Work | RoleWork) -> bool:
        """Return whether this process failed to begin `work`, and nothing changed since then."""
        return self._unable.get(work.target) == _attempt(state, work)

    async def park(self, state: FlowState, body: Parked) -> None:
        """Append `body`, which parks work, unless the flow has changed since `state`.

        If the flow has changed, nothing is parked, and the scheduler's next pass decides again.
        """
        head = state.head
        await self._journal.append(lambda now: (body,) if now.head == head else ())

    async def park_unbegun(self, state: FlowState, work: Work | RoleWork, body: Parked) -> None:
        """Park `work`, which could not begin; a person's reply to it stays queued."""
        if work.text is not None:
            self._unable[work.target] = _attempt(state, work)
            body = msgspec.structs.replace(body, keeps_reply=True)
        await self.park(state, body)

    async def park_part(self, part: TurnPart, why: str) -> None:
        """Park `part`, whose turn failed or could not begin."""
        state = await self._journal.state()
        body = park_entry(part, why)
        if part.work is not None and part.claim(state) is not None:
            await self.park_unbegun(state, part.work, body)
        else:
            await self.park(state, body)


def park_entry(work: TurnPart | Work | RoleWork, why: str) -> Parked:
    """Return the entry that parks `work`."""
    if isinstance(work, NodePart):
        return NodeParked(work.node, work.role, "autonomous-abort", why)
    if isinstance(work, Work):
        return NodeParked(work.target, work.role, "autonomous-abort", why)
    return ImprovementParked(work.role, "autonomous-abort", why)


def _attempt(state: FlowState, work: Work | RoleWork) -> _Attempt:
    return work.text, state.roles.get(work.role)
