"""Errors of flow operations."""

from __future__ import annotations

from perdure.errors.engine import EngineError
from perdure.errors.stores import SessionExists, SessionNotFound


class FlowNotFound(SessionNotFound):
    """No flow has this id; it may be the id of a session."""

    def __init__(self, flow: str) -> None:
        super().__init__(flow)
        self.args = (f"no flow {flow!r} here; Flows.list lists the flows",)
        self.flow = flow


class FlowExists(SessionExists):
    """The id of a new flow already belongs to a flow or session."""

    def __init__(self, flow: str, *, is_erased: bool = False) -> None:
        super().__init__(flow, is_erased=is_erased)
        told = f"{flow!r} exists already: Flows.open continues it, if it is a flow"
        told = f"{told}; else choose another id"
        if is_erased:
            told = f"{flow!r} was deleted and its id is reserved; choose another id"
        self.args = (told,)
        self.flow = flow


class FlowRefusal(EngineError):
    """The flow cannot do the operation in its current state; nothing was changed.

    `role` is the affected role, and `session` is the session of this role; both can be None. If
    `is_waiting` is True, the message also names `Flow.waiting`, which says what the flow waits for.
    """

    code = "flow_refusal"

    def __init__(
        self,
        flow: str,
        why: str,
        *,
        role: str | None = None,
        session: str | None = None,
        is_waiting: bool = False,
    ) -> None:
        advice = " (Flow.waiting says what it waits for)" if is_waiting else ""
        super().__init__(f"flow {flow!r} cannot do that: {why}{advice}")
        self.flow = flow
        self.why = why
        self.role = role
        self.session = session
