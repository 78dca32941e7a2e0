"""The scope of memory: namespace, then subject, then agent.

Memory without a subject is a separate scope.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

ScopeName = Literal["subject", "agent", "namespace"]
"""``subject`` means one person or none; ``agent`` means one agent with every subject.

``namespace`` means all memory of the namespace.
"""


class Scoped(Protocol):
    """What a `MemoryFilter` selects: an episode or a fact."""

    @property
    def subject(self) -> str | None: ...

    @property
    def agent(self) -> str | None: ...


class MemoryFilter(msgspec.Struct, frozen=True):
    """A filter that selects the episodes and facts that a call sees.

    With the default `name`, the call sees only episodes and facts of exactly `subject`. If
    `subject` is None, the call sees only episodes and facts without a subject. With `agent` None,
    the call sees the episodes and facts of every agent of the subject.
    """

    subject: str | None = None
    agent: str | None = None
    name: ScopeName = "subject"

    def covers(self, memory: Scoped) -> bool:
        """Return whether `memory` is in this scope."""
        if self.name == "subject" and memory.subject != self.subject:
            return False
        return self.agent is None or memory.agent == self.agent
