"""May a tool call run: what a policy says before the call's intent is in the log.

The turn machine asks the judge of its turn for every call, and acts on the verdict: it writes the
intent, answers the call with a refusal, or asks a person in the inbox. A judge is pure, because the
machine computes a step anew when others appended in between.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.session.messages import ToolCallPart


class Allowed(msgspec.Struct, frozen=True):
    """The tool may run."""


class Denied(msgspec.Struct, frozen=True):
    """The tool may not run; the model is told `reason`."""

    reason: str
    error_code: str = "tool_denied"


class NeedsApproval(msgspec.Struct, frozen=True):
    """A person decides. `text` shows what would happen.

    `grant` is what the answer "always" allows for the rest of the session, None where there is
    no such answer. Units: `expires_at` Unix milliseconds.
    """

    text: str
    grant: str | None = None
    expires_at: int | None = None


Verdict = Allowed | Denied | NeedsApproval
Judge = Callable[[ToolCallPart, frozenset[str]], Verdict]
"""Says whether a call may run, given the grants of the turn so far. Pure: it looks at nothing."""


def allows_all(call: ToolCallPart, granted: frozenset[str]) -> Verdict:
    """The judge of an agent without a policy."""
    return Allowed()
