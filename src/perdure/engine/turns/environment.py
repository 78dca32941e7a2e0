"""What turns of one session run with: the outside world as arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.context.tokens import corrected_scale, estimate_request
from perdure.engine.turns.leading import Claim
from perdure.events.bus import LiveBus
from perdure.models.protocol import ModelClient, ModelRequest, ThinkingLevel
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.session.messages import Usage
from perdure.stores.protocol import SessionStore
from perdure.tools.registry import ToolRegistry

LEASE_TTL_MS = 30_000


class Scales:
    """By how much estimates of tokens have to be corrected, learnt per model by this process."""

    def __init__(self) -> None:
        self._scales: dict[str, float] = {}

    def of(self, model: str) -> float:
        """The factor for `model`; 1 before it has reported any usage."""
        return self._scales.get(model, 1.0)

    def learn(self, request: ModelRequest, usage: Usage) -> None:
        """Take in what the provider counted for `request`."""
        scale = self.of(request.model)
        reported = usage.total_tokens - usage.output_tokens
        estimated = estimate_request(request, scale)
        self._scales[request.model] = corrected_scale(scale, estimated, reported)


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything a runner touches besides the log's rules.

    `owner` names this process to others who find the session in use; `is_gone` says of such a
    name that its process is certainly dead. Units: `lease_ttl_ms` milliseconds: how long a
    session stays blocked after its process died without a word.
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
    scales: Scales
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
