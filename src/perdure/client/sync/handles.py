"""The handles of `perdure.blocking`, without async.

Type checkers read ``handles.pyi``, which is generated.
"""

from __future__ import annotations

from perdure.client.agents.chat import Chat as AsyncChat
from perdure.client.agents.runtime import Runtime as AsyncRuntime
from perdure.client.agents.turn import Turn as AsyncTurn
from perdure.client.memory.handle import Memory as AsyncMemory
from perdure.client.requests.schedule import Schedule as AsyncSchedule
from perdure.client.session import Session as AsyncSession
from perdure.client.store import Store as AsyncStore
from perdure.client.sync.handle import Handle
from perdure.client.watch import Watch as AsyncWatch


class Watch(Handle[AsyncWatch], of=AsyncWatch):
    """`perdure.client.watch.Watch` without async."""


class Session(Handle[AsyncSession], of=AsyncSession):
    """`perdure.client.session.Session` without async."""


class Store(Handle[AsyncStore], of=AsyncStore):
    """`perdure.client.store.Store` without async."""


class Memory(Handle[AsyncMemory], of=AsyncMemory):
    """`perdure.client.memory.handle.Memory` without async."""


class Schedule(Handle[AsyncSchedule], of=AsyncSchedule):
    """`perdure.client.requests.schedule.Schedule` without async."""


class Turn(Handle[AsyncTurn], of=AsyncTurn):
    """`perdure.client.agents.turn.Turn` without async."""


class Chat(Handle[AsyncChat], of=AsyncChat):
    """`perdure.client.agents.chat.Chat` without async."""


class Runtime(Handle[AsyncRuntime], of=AsyncRuntime, made_from="store"):
    """`perdure.client.agents.runtime.Runtime` without async."""
