"""Durable runs: a ledger of model calls and tool calls, stored in a separate session.

A note is appended before each call (its intent) and after it (its outcome). If a run starts again
with the same id, calls that ended are not repeated, and their stored outcomes are returned. Each
note is appended only if the session still has the expected head. If two processes run the same
durable run, the slower process stops.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar, Token
from typing import Final, Literal, Self, cast

import perdure
from perdure.adapters.pydantic_ai.messages import Item
from perdure.adapters.session_ids import session_id_of
from perdure.adapters.store_loop import StoreLoop
from perdure.adapters.stored_json import json_data
from perdure.errors import (
    HeadConflict,
    InvalidEntry,
    LimitExceeded,
    WrongArgument,
)

PREFIX: Final = "pai-run"
"""The session id of a run begins with this prefix and a colon."""

INTENT: Final = "pydantic_ai.started"
OUTCOME: Final = "pydantic_ai.finished"
FAILURE: Final = "pydantic_ai.failed"
"""`Note.note_type` of the notes of the ledger: intents, outcomes and failures."""

OnUnknown = Literal["never", "retry", "ask"]
"""The policy for a tool call that began and has no known outcome."""

_current: ContextVar[DurableRun | None] = ContextVar("perdure_pydantic_ai_run", default=None)


def current_run() -> DurableRun | None:
    """Return the durable run that the calling code is part of; None outside of a run."""
    return _current.get()


class DurableRun:
    """A run that can be resumed after a kill: ``async with DurableRun("job-17", store): ...``.

    Inside the run, agents with `PerdureDurability` store every model call and tool call. The code
    inside the ``async with`` block can be started again with the same `id`, in this process or
    another. Calls that ended before the run was started again are not repeated. The code must make
    the same calls in the same order, as with every durable engine. `store` is a `perdure.Store` or
    a `perdure.blocking.Store`. Only one process executes a run at a time.
    """

    def __init__(self, id: str, store: perdure.Store | perdure.blocking.Store) -> None:
        if not id:
            raise WrongArgument("a durable run needs an id, such as that of a job", argument="id")
        self.id = id
        self._loop = StoreLoop(store)
        self._store = self._loop.store
        self._session: perdure.Session | None = None
        self._head = -1
        self._lock = asyncio.Lock()
        self._numbers: dict[str, int] = {}
        self._begun: set[str] = set()
        self._outcomes: dict[str, str | dict[str, str]] = {}
        self._failures: dict[str, str] = {}
        self._token: Token[DurableRun | None] | None = None

    @property
    def stored_id(self) -> str:
        """The id of the session in the store."""
        return session_id_of(PREFIX, self.id)

    async def __aenter__(self) -> Self:
        await self._loop.call(self._open())
        self._token = _current.set(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._token is not None:
            _current.reset(self._token)
            self._token = None

    def number_of(self, name: str) -> int:
        """Return how many earlier calls of this method in this process had the same `name`."""
        number = self._numbers.get(name, 0)
        self._numbers[name] = number + 1
        return number

    async def done(
        self,
        unit: str,
        body: Callable[[], Awaitable[object]],
        *,
        unknown: Callable[[str | None], object | None],
        before: Sequence[Item] = (),
        after: Callable[[object], Sequence[Item]] = lambda _: (),
    ) -> tuple[object, bool]:
        """Return the outcome of `unit`, and whether `body` ran in this call.

        If `unit` failed or did not end in an earlier process, `unknown` is called with the error
        text, if any. `unknown` returns the outcome to use, or None to repeat the call. `before` and
        `after` provide messages for people who read the session: the input of the call, and its
        outcome.
        """
        if unit in self._outcomes:
            return await self._outcome(unit), False
        if unit in self._begun:
            instead = unknown(self._failures.get(unit))
            if instead is not None:
                await self._note(OUTCOME, unit, instead)
                return instead, False
        await self._note(INTENT, unit, None, () if unit in self._begun else before)
        self._begun.add(unit)
        try:
            outcome = await body()
        except Exception as error:
            await self._note(FAILURE, unit, f"{type(error).__name__}: {error}")
            raise
        await self._note(OUTCOME, unit, outcome, after(outcome))
        return outcome, True

    # ------------------------------------------------------------ on the loop of the store

    async def _open(self) -> None:
        metadata = {"framework": "pydantic-ai", "run_id": self.id}
        session = await self._store.open_or_create(self.stored_id, metadata=metadata)
        self._head = session.head
        async for entry in session.notes():
            note = perdure.body_of(entry)
            if isinstance(note, perdure.Note):
                self._fold(note)
        self._session = session

    def _fold(self, note: perdure.Note) -> None:
        unit = note.data.get("unit")
        if not isinstance(unit, str):
            return
        if note.note_type == INTENT:
            self._begun.add(unit)
            self._failures.pop(unit, None)
        elif note.note_type == OUTCOME:
            value = note.data.get("json", note.data.get("content"))
            self._outcomes[unit] = cast("str | dict[str, str]", value)
        elif note.note_type == FAILURE:
            self._failures[unit] = json.loads(cast("str", note.data.get("json", '""')))

    async def _outcome(self, unit: str) -> object:
        stored = self._outcomes[unit]
        if isinstance(stored, str):
            return json.loads(stored)
        return json.loads(await self._loop.call(self._store.content(stored["handle"])))

    async def _note(
        self, kind: str, unit: str, value: object, messages: Sequence[Item] = ()
    ) -> None:
        """Append a note about `unit` and the readable `messages`.

        Durable: the change is stored when this call returns.
        """
        data: dict[str, object] = {"unit": unit}
        if kind != INTENT:
            data |= json_data(json.dumps(value, separators=(",", ":")))
        note = perdure.Note(kind, data)
        async with self._lock:
            try:
                await self._loop.call(self._append([*messages, note]))
            except (InvalidEntry, LimitExceeded, OverflowError, ValueError):
                if not messages:
                    raise
                # A message that no log can hold, such as half of a character pair, is not shown.
                await self._loop.call(self._append([note]))

    async def _append(self, items: Sequence[perdure.types.Item]) -> None:
        if self._session is None:
            raise WrongArgument("use a durable run with: async with DurableRun(...)")
        try:
            entries = await self._session.append_many(items, expected_head=self._head)
        except HeadConflict as error:
            raise RunTakenOver(self.id) from error
        self._head = entries[-1].seq


class RunTakenOver(RuntimeError):
    """Another process runs the same durable run, or wrote to its session."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"another process continues the durable run {id!r}: end one of them; the run in the "
            "other goes on"
        )
