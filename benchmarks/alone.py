"""The store operations and model requests of a turn, repeated separately."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

import perdure
from benchmarks.raw import RawLog
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.client.store import Store
from perdure.engine.turns.config import Limits
from perdure.models.protocol import Delta, ModelInfo, ModelRequest
from perdure.models.scenario import Scenario
from perdure.models.scripted import ScriptedModel
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.messages import Message
from perdure.stores.protocol import Commit, CommitResult, Lease, Write
from perdure.stores.session_store import SessionStore
from perdure.tools.spec import ToolSpec

T = TypeVar("T")

MODEL = "scripted:bench"
MOST_TURNS = 1_000
TTL_MS = 30_000
_READS = ("state", "entries", "entry", "branch", "context_window", "tree", "notes", "partial")


_ACQUIRED, _RELEASED = (-1, b""), (-2, b"")
"""Entries of `Recorder.written` for a lease that was acquired, or released, outside of a commit."""


class Turn(msgspec.Struct, frozen=True):
    """The times of one turn, and of its parts repeated alone: commits, other writes, model calls.

    The first commit acquires the lease and the last commit releases it. The repeated commits do the
    same.

    Units: milliseconds; `computed_ms` is the CPU time of all threads of the process, without the
    commits.
    """

    whole_ms: float
    commits_ms: float
    raw_ms: float
    kept_ms: float
    model_ms: float
    computed_ms: float
    commits: int
    reads: int

    @property
    def own_ms(self) -> float:
        """The time of the turn without its commits."""
        return self.whole_ms - self.commits_ms

    @property
    def rest_ms(self) -> float:
        """The time without the commits and the model."""
        return self.own_ms - self.model_ms


class Recorder:
    """A store that records the writes through it, and counts the reads."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.written: list[Commit | tuple[int, bytes]] = []
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        self.reads += name in _READS
        return getattr(self.store, name)

    async def commit(self, commit: Commit) -> CommitResult:
        self.written.append(commit)
        return await self.store.commit(commit)

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        self.written.append(_ACQUIRED)
        return await self.store.acquire_lease(stream, owner, ttl_ms, dead_owner=dead_owner)

    async def release_lease(self, lease: Lease) -> None:
        self.written.append(_RELEASED)
        await self.store.release_lease(lease)

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        self.written.append((seq, content))
        await self.store.put_partial(lease, seq, content)


class Asked:
    """A model that records its requests."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.requests: list[ModelRequest] = []

    def info(self, model: str) -> ModelInfo:
        return self.model.info(model)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        return self.model.stream(request)


class Alone:
    """Sessions of an agent, each with a twin session that repeats its turns. See `alone`."""

    def __init__(
        self, store: Store, raw: RawLog, scenario: Scenario, tools: Sequence[ToolSpec]
    ) -> None:
        self._recorder = Recorder(store.backend)
        store.backend = cast("SessionStore", self._recorder)
        self._model = Asked(ScriptedModel(scenario, clock=store.outside.clock))
        limits = Limits(max_turns=MOST_TURNS)
        self._agent = Agent("bench", model=MODEL, tools=tools, limits=limits)
        self._runtime = Runtime(store, [self._agent], models=self._model)
        self._raw = raw
        self._number = 0

    async def begin(self, history: Sequence[Message], at_once: int, pins: int = 0) -> None:
        """Create a session with `history` whose first `pins` entries are pinned, and its twin."""
        self._number += 1
        self._chat: Chat = await self._runtime.start(self._agent, id=f"a{self._number}")
        self._twin = StreamId(f"b{self._number}")
        for start in range(0, len(history), at_once):
            await self._chat.session.append_many(history[start : start + at_once])
        for entry in await self._chat.session.tree_entries(pins) if pins else ():
            await self._chat.session.pin(entry.id)
        for commit in self._taken():
            assert isinstance(commit, Commit)
            await self._recorder.store.commit(self._mirrored(commit, None))

    async def turn(self, said: str) -> Turn:
        """Run a turn, and then repeat its parts alone."""
        reads, began, computed = self._recorder.reads, time.perf_counter(), time.process_time()
        await self._chat.send(said)
        whole_ms = (time.perf_counter() - began) * 1000
        computed_ms = (time.process_time() - computed) * 1000
        reads = self._recorder.reads - reads
        requests, self._model.requests = self._model.requests, []
        return await self._again(requests, whole_ms, computed_ms, reads)

    async def _again(
        self, requests: list[ModelRequest], whole_ms: float, computed_ms: float, reads: int
    ) -> Turn:
        store, kept, commits = self._recorder.store, _Lap(), _Lap()
        lease: Lease | None = None
        bodies: list[list[bytes]] = []
        for written in self._taken():
            if isinstance(written, Commit):
                bodies.append([entry.body for entry in written.writes[0].entries])
                done = await commits.of(store.commit(self._mirrored(written, lease)))
                lease = done.leases[0] if done.leases else lease
            elif written == _ACQUIRED:
                lease = await kept.of(store.acquire_lease(self._twin, "bench", TTL_MS))
            elif lease is not None and written == _RELEASED:
                await kept.of(store.release_lease(lease))
            elif lease is not None:
                await kept.of(store.put_partial(lease, *written))
        model = _Lap()
        for request in requests:
            await model.of(_answered(self._model.model, request))
        began = time.perf_counter()
        for each in bodies:
            self._raw.append(each, self._number)
        return Turn(
            whole_ms=whole_ms,
            commits_ms=commits.wall_ms,
            raw_ms=(time.perf_counter() - began) * 1000,
            kept_ms=kept.wall_ms,
            model_ms=model.wall_ms,
            computed_ms=computed_ms - commits.computed_ms,
            commits=len(bodies),
            reads=reads,
        )

    def _taken(self) -> list[Commit | tuple[int, bytes]]:
        written, self._recorder.written = self._recorder.written, []
        return written

    def _mirrored(self, commit: Commit, lease: Lease | None) -> Commit:
        """Return `commit` for the twin session, with references to the twin's own entries."""
        (write,) = commit.writes
        create = write.create
        if create is not None:
            create = msgspec.structs.replace(create, id=self._twin)
        twin = Write(
            stream=self._twin,
            create=create,
            entries=tuple(self._moved(entry, write.stream) for entry in write.entries),
            expected_head=write.expected_head,
            lease=lease if write.taking is None else None,
            taking=write.taking,
            is_releasing=write.is_releasing,
        )
        return msgspec.structs.replace(commit, writes=(twin,))

    def _moved(self, entry: NewEntry, stream: StreamId) -> NewEntry:
        about = entry.about
        if isinstance(about, str):
            about = EntryId(f"{self._twin}{about.removeprefix(stream)}")
        return msgspec.structs.replace(entry, about=about)


@asynccontextmanager
async def alone(path: Path, scenario: Scenario, tools: Sequence[ToolSpec]) -> AsyncGenerator[Alone]:
    """Yield sessions on a store in the file `path`, and a raw table in a second file."""
    raw = RawLog(path.with_suffix(".raw.db"), "full")
    async with perdure.open(f"sqlite:///{path}") as store:
        yield Alone(store, raw, scenario, tools)
    raw.close()


class _Lap:
    """The total wall time and CPU time of the operations passed to `of`."""

    def __init__(self) -> None:
        self.wall_ms = 0.0
        self.computed_ms = 0.0

    async def of(self, work: Awaitable[T]) -> T:
        began, computed = time.perf_counter(), time.process_time()
        done = await work
        self.wall_ms += (time.perf_counter() - began) * 1000
        self.computed_ms += (time.process_time() - computed) * 1000
        return done


async def _answered(model: ScriptedModel, request: ModelRequest) -> None:
    async for _ in model.stream(request):
        pass
