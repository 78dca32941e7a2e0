"""The environment of a session's turns: everything outside the log, passed as arguments."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from perdure.context.tokens import corrected_scale
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.config import SilenceLimits
from perdure.engine.turns.lease import Claim
from perdure.engine.turns.observer import SILENCE, Observer
from perdure.events.bus import LiveBus
from perdure.models.embedders.protocol import Embedder
from perdure.models.protocol import ModelClient, ThinkingLevel, ToolDeclaration
from perdure.models.router import ModelRouter
from perdure.secrets.vault import Vault
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import Delegated
from perdure.session.memory.kinds import ContextRecalled
from perdure.session.messages import Usage
from perdure.stores.session_store import SessionStore
from perdure.tools.permissions import Permissions
from perdure.tools.registry import ToolRegistry
from perdure.tools.spec import ToolCall, ToolOutput

LEASE_TTL_MS = 30_000


class Scales:
    """Correction factors for token estimates, learned per model by this process."""

    def __init__(self) -> None:
        self._scales: dict[str, float] = {}

    def of(self, model: str) -> float:
        """Return the factor for `model`; 1 before the model has reported any usage."""
        return self._scales.get(model, 1.0)

    def learn(self, model: str, size: float, usage: Usage) -> None:
        """Learn from the provider's token count for a request with the estimated size `size`.

        Units: `size` is in tokens, as estimated without any correction.
        """
        scale = self.of(model)
        reported = usage.total_tokens - usage.output_tokens
        self._scales[model] = corrected_scale(scale, math.ceil(size * scale), reported)


class Cooldowns:
    """Providers that asked for a pause, which applies to all sessions of this process."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}

    def learn(self, parked: Mapping[str, int]) -> None:
        """Add the pauses that a turn learned, as provider -> end in Unix milliseconds."""
        for provider, until in parked.items():
            self._until[provider] = max(until, self._until.get(provider, 0))

    def open_at(self, at: int) -> dict[str, int]:
        """Return the pauses that end after the time `at`."""
        return {provider: until for provider, until in self._until.items() if until > at}


OnWait = Callable[[StreamId, EntryId], None]


class PersonWaits:
    """Records which sessions of one process have a turn that waits for a person.

    `on_wait` is called with the session and the question when a turn begins to wait.
    """

    def __init__(self, on_wait: OnWait = lambda session, question: None) -> None:
        self.on_wait = on_wait
        self._waiting: Counter[StreamId] = Counter()
        self._watchers: set[asyncio.Future[None]] = set()

    def is_waiting(self, session: StreamId) -> bool:
        """Return whether the turn of `session` waits for a person."""
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
        """Return a future that completes when any session begins or ends waiting."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return watcher

    def _wake(self) -> None:
        for watcher in tuple(self._watchers):
            if not watcher.done():
                watcher.set_result(None)


RenewCredentials = Callable[[str], Awaitable[bool]]
"""Returns whether a new key is available for the named provider, whose key was rejected."""


class Delegation(Protocol):
    """Lets a session's turns give work to other agents, in separate sessions."""

    async def invoke(
        self, call: ToolCall, agent: str, said: str, *, is_aborted: Callable[[], bool]
    ) -> ToolOutput:
        """Send the message `said` from the session of `call` to `agent`; return its answer.

        Durable: the session is opened once, however often the call is repeated. If the call is
        cancelled and `is_aborted` returns True, the agent's turn is aborted; otherwise the turn
        stays open and can be resumed.
        Raises: ToolError if the agent cannot be called.
        """
        ...

    async def find_delegated(self, key: str) -> Delegated | None:
        """Return the session that the call with the idempotency key `key` opened, if any."""
        ...


class ToCompact(msgspec.Struct, frozen=True):
    """The planned compaction, on which the texts around its summary depend.

    `unanswered` is the text of the user's newest message, if the compaction would remove this
    message from the context before it is answered. `kept` is the text of the message that follows
    the summary.
    Units: `window_tokens` is the size of the model's window in tokens, or None if it is unknown.
    """

    unanswered: str | None = None
    kept: str | None = None
    window_tokens: int | None = None


class SummaryFrame(msgspec.Struct, frozen=True):
    """Texts before and after a summary."""

    before: str
    after: str


FrameOf = Callable[[ToCompact], Awaitable[SummaryFrame | None]]


class WorkingMemory(Protocol):
    """The memory that a session has of earlier sessions.

    Units: `max_tokens` is the maximum size of a request in tokens.
    """

    @property
    def max_tokens(self) -> int | None: ...

    async def recall(self, message: str) -> ContextRecalled | None:
        """Return what a turn that begins with `message` remembers; None if it remembers nothing."""
        ...

    async def texts(self, recalled: ContextRecalled) -> list[str]:
        """Return those recalled texts that still exist, the most important first."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that a runner uses, apart from the rules of the log.

    `owner` is the name of this process, shown to other processes that find the session in use;
    `is_gone` returns whether the process with a given name is certainly dead. `invoked_by` are the
    sessions whose turns wait for the turn of this session; `person_waits` records which sessions
    wait for a person. `permissions` limits the access of tools, and `vault` contains named secrets.
    `router` knows the providers of models, and loads their clients; None if the program gave a
    client of its own. `delegation` lets tools invoke other agents; None if there are no other
    agents. `frame_of` returns the texts around the summary of a ``node`` compaction.
    Units: `lease_ttl_ms` is in milliseconds. If the process of a turn dies without notice, the
    session stays blocked for `lease_ttl_ms`.
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
    router: ModelRouter | None = None
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
    on_session_end: Callable[[], None] = lambda: None
    on_embedder: Callable[[Embedder, int], None] = lambda _embedder, _dimension: None

    @property
    def claim(self) -> Claim:
        """Return this process's claim to the session's lease."""
        return Claim(
            self.store, self.stream, self.clock, self.owner, self.lease_ttl_ms, self.is_gone
        )

    def random01(self) -> float:
        """Return a random number in [0, 1)."""
        return int.from_bytes(self.random(4), "big") / 2**32


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """The parts of a request that are the same for all requests of the session.

    Units: `size` is the size of the instructions and the tools in tokens, estimated without any
    correction.
    """

    system: str | None = None
    tools: tuple[ToolDeclaration, ...] = ()
    size: float = 0.0
    thinking_level: ThinkingLevel = "off"
    max_output_tokens: int | None = None
    temperature: float | None = None
    max_messages: int | None = None
    memory: WorkingMemory | None = None
    output_schema: Mapping[str, object] | None = None
