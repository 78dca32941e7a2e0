"""Why an outgoing request was not made, or had no usable end. Never shows an address or a path."""

from __future__ import annotations

from perdure.errors.root import PerdureError


class EgressError(PerdureError):
    """A request to the outside could not be made or was not answered."""

    code = "egress_error"
    retryable = True

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class EgressDenied(EgressError):
    """A rule forbids where the request was to go; nothing was sent."""

    code = "egress_denied"
    retryable = False
