"""What turns of one session run with: the outside world as arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.engine.turns.leading import Claim
from perdure.events.bus import LiveBus
from perdure.models.protocol import ModelClient, ThinkingLevel
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.stores.protocol import SessionStore
from perdure.tools.registry import ToolRegistry

LEASE_TTL_MS = 30_000


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything a runner touches besides the log's rules.

    `owner` names this process to others who find the session in use; `is_gone` says of such a
    name that its process is certainly dead. Units: `lease_ttl_ms`
    milliseconds: how long a session stays blocked after its process died without a word.
    """

    stream: StreamId
    store: SessionStore
    models: ModelClient
    tools: ToolRegistry
    clock: Clock
    random: RandomSource
    bus: LiveBus
    owner: str
    working_dir: Path
    lease_ttl_ms: int = LEASE_TTL_MS
    is_gone: Callable[[str], bool] = lambda owner: False

    @property
    def claim(self) -> Claim:
        """This process's claim to lead the session."""
        return Claim(
            self.store, self.stream, self.clock, self.owner, self.lease_ttl_ms, self.is_gone
        )

    def random01(self) -> float:
        """A random number from 0 up to 1."""
        return int.from_bytes(self.random(4), "big") / 2**32


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What every request of the session has in common besides its messages."""

    system: str | None = None
    thinking_level: ThinkingLevel = "off"
    max_output_tokens: int | None = None
    temperature: float | None = None
