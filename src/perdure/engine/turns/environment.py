"""What turns of one session run with: the outside world as arguments."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from perdure.context.tokens import corrected_scale
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.lease import Claim
from perdure.engine.turns.observer import SILENCE, Observer
from perdure.events.bus import LiveBus
from perdure.models.protocol import ModelClient, ThinkingLevel, ToolDeclaration
from perdure.secrets.vault import Vault
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import Delegated
from perdure.session.messages import Usage
from perdure.stores.protocol import SessionStore
from perdure.tools.permissions import Permissions
from perdure.tools.registry import ToolRegistry
from perdure.tools.spec import ToolCall, ToolOutput

LEASE_TTL_MS = 30_000


class Scales:
    """By how much estimates of tokens have to be corrected, learnt per model by this process."""

    def __init__(self) -> None:
        self._scales: dict[str, float] = {}

    def of(self, model: str) -> float:
        """The factor for `model`; 1 before it has reported any usage."""
        return self._scales.get(model, 1.0)

    def learn(self, model: str, size: float, usage: Usage) -> None:
        """Take in what the provider counted for a request of `size`.

        Units: `size` in tokens, as estimated without any correction.
        """
        scale = self.of(model)
        reported = usage.total_tokens - usage.output_tokens
        self._scales[model] = corrected_scale(scale, math.ceil(size * scale), reported)


class Cooldowns:
    """Which providers this process has been asked to leave alone, whatever session asked them."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}

    def learn(self, parked: Mapping[str, int]) -> None:
        """Take in what a turn has learnt. Units: Unix milliseconds, by provider."""
        for provider, until in parked.items():
            self._until[provider] = max(until, self._until.get(provider, 0))

    def open_at(self, at: int) -> dict[str, int]:
        """Those that last beyond `at`."""
        return {provider: until for provider, until in self._until.items() if until > at}


OnWait = Callable[[StreamId, EntryId], None]


class PersonWaits:
    """The sessions of one process whose turns wait for a person.

    `on_wait` is called with the session and the question when a turn begins to wait for its answer.
    """

    def __init__(self, on_wait: OnWait = lambda session, question: None) -> None:
        self.on_wait = on_wait
        self._waiting: Counter[StreamId] = Counter()
        self._watchers: set[asyncio.Future[None]] = set()

    def is_waiting(self, session: StreamId) -> bool:
        """Whether the turn of `session` waits for a person."""
        return self._waiting[session] > 0

    @contextmanager
    def waiting(self, sessions: Iterable[StreamId]) -> Generator[None]:
        """Mark `sessions` as waiting for the duration of the block."""
        marked = Counter(sessions)
        self._waiting += marked
        self._wake()
        try:
            yield
        finally:
            self._waiting -= marked
            self._wake()

    def change(self) -> asyncio.Future[None]:
        """A future that is done once a session begins or ends to wait, from this call on."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return watcher

    def _wake(self) -> None:
        for watcher in tuple(self._watchers):
            if not watcher.done():
                watcher.set_result(None)


class SilenceLimits(msgspec.Struct, frozen=True):
    """How long a model's provider may be silent; see `ModelRequest`. Units: seconds."""

    first_byte_timeout_s: float | None = None
    stream_idle_timeout_s: float | None = None


RenewCredentials = Callable[[str], Awaitable[bool]]
"""Given a provider whose key was refused: whether there is another one now."""


LoadModels = Callable[[Sequence[str]], Awaitable[None]]
"""Loads what is needed to call the models of these names, without blocking the event loop."""


class Delegation(Protocol):
    """How a session's turns have work done by other agents, in sessions of their own."""

    async def invoke(
        self, call: ToolCall, agent: str, said: str, *, is_aborted: Callable[[], bool]
    ) -> ToolOutput:
        """What `agent` answers to `said`, in the session that belongs to `call`.

        Durable: the session is opened once, however often the call is repeated. When this is
        cancelled its turn is aborted if `is_aborted`, else left open to be resumed.
        Raises: ToolError when the agent cannot be asked.
        """
        ...

    async def find_delegated(self, key: str) -> Delegated | None:
        """The session that the call with the idempotency key `key` opened, if it did."""
        ...


class ToCompact(msgspec.Struct, frozen=True):
    """What a compaction is about to do, for the text around its summary.

    `unanswered` is the text of the user's newest message, where it would leave the context and was
    not answered; `kept` that of the message that stays after the summary.
    Units: tokens, of the model's window; None where unknown.
    """

    unanswered: str | None = None
    kept: str | None = None
    window_tokens: int | None = None


class SummaryFrame(msgspec.Struct, frozen=True):
    """Texts that stand before and after a summary."""

    before: str
    after: str


FrameOf = Callable[[ToCompact], Awaitable[SummaryFrame | None]]


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything a runner touches besides the log's rules.

    `owner` names this process to others who find the session in use; `is_gone` says of such a
    name that its process is certainly dead. `invoked_by` are the sessions whose turns wait for this
    one's, `person_waits` knows which of them wait for a person. `permissions` is what tools may
    touch and `vault` where named secrets are; `delegation` is how they invoke other agents, None
    where there are none. `frame_of` gives what the summary of a ``node`` compaction stands in.
    Units: `lease_ttl_ms` milliseconds: how long a session stays blocked after its process died
    without a word.
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
    hooks: Hooks | None = None
    cooldowns: Cooldowns = field(default_factory=Cooldowns)
    renew_credentials: RenewCredentials | None = None
    load_models: LoadModels | None = None
    permissions: Permissions = field(default_factory=Permissions)
    vault: Vault | None = None
    observer: Observer = SILENCE
    delegation: Delegation | None = None
    scratch_dir: Path | None = None
    record: Path | None = None
    invoked_by: tuple[StreamId, ...] = ()
    person_waits: PersonWaits = field(default_factory=PersonWaits)
    silence: SilenceLimits = field(default_factory=SilenceLimits)
    frame_of: FrameOf | None = None

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
    """What every request of the session has in common besides its messages.

    Units: `size` is what the instructions and the tools take, in tokens, estimated without any
    correction.
    """

    system: str | None = None
    tools: tuple[ToolDeclaration, ...] = ()
    size: float = 0.0
    thinking_level: ThinkingLevel = "off"
    max_output_tokens: int | None = None
    temperature: float | None = None
    max_messages: int | None = None
