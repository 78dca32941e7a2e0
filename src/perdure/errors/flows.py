"""What a flow cannot do in the state it is in."""

from __future__ import annotations

from perdure.errors.engine import EngineError


class FlowRefusal(EngineError):
    """Somebody asked something of a flow that it does not wait for; nothing was changed."""

    code = "flow_refusal"

    def __init__(self, flow: str, why: str) -> None:
        super().__init__(
            f"flow {flow!r} cannot do that: {why} (`perdure flow show {flow}` says what it waits "
            "for)"
        )
        self.flow = flow
        self.why = why
