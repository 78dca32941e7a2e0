"""``perdure`` commands that a test kills at a chosen point, each in its own process.

A server forks the commands. A fork behaves like the installed command, but its modules are already
loaded. The crash tests run hundreds of commands, and loading the modules would take most of their
time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from perdure.stores.sqlite.store import SqliteStore

SERVER = Path(__file__).parents[1] / "crash" / "children" / "commands.py"

Moment = Literal["before", "after"]
Thing = Literal["commit", "write"]
"""The event at which a process may die: a commit, or the write of a lease or a partial answer."""

_WRITES = ("acquire_lease", "release_lease", "put_partial")


class Kill(msgspec.Struct, frozen=True):
    """The point at which a process kills itself: before or after its `n`-th successful `thing`.

    `n` counts from 1.
    """

    n: int
    moment: Moment = "after"
    thing: Thing = "commit"


class Asked(msgspec.Struct, frozen=True):
    """A command to be run in `folder`; the store of the command is in the same folder."""

    words: tuple[str, ...]
    folder: str
    kill: Kill | None = None


class Ended(msgspec.Struct, frozen=True):
    """The end of a command: its exit code, negative for a signal, and the number of its commits."""

    code: int
    out: str
    err: str
    commits: int
    writes: int

    @property
    def is_killed(self) -> bool:
        """Return whether the command was killed, rather than ended by itself."""
        return self.code == -signal.SIGKILL


def environment(folder: str) -> dict[str, str]:
    """Return the environment of a command, without the variables of the user who runs the tests."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": folder,
        "PERDURE_STORE": f"sqlite:///{folder}/store.db",
        "COLUMNS": "100",
        "LANG": "C.UTF-8",
    }


class Commands:
    """A server of commands, for the length of a ``with``."""

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-W", "error", str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.communicate(timeout=60)

    def run(self, words: Sequence[str], folder: Path, kill: Kill | None = None) -> Ended:
        """Run ``perdure`` with `words`."""
        asking, telling = self._server.stdin, self._server.stdout
        assert asking is not None
        assert telling is not None
        asking.write(msgspec.json.encode(Asked(tuple(words), str(folder), kill)) + b"\n")
        asking.flush()
        return msgspec.json.decode(telling.readline(), type=Ended)


def make_mortal(kill: Kill | None, told: int) -> None:
    """Make this process die at `kill`.

    Before the process dies, it reports each commit and each write on the file descriptor `told`.
    """
    reaper = _Reaper(kill, told)
    for name in ("commit", *_WRITES):
        whole = getattr(SqliteStore, name)
        thing: Thing = "commit" if name == "commit" else "write"
        setattr(SqliteStore, name, reaper.watched(whole, thing))


class _Reaper:
    def __init__(self, kill: Kill | None, told: int) -> None:
        self._kill = kill
        self._told = told
        self._seen = {"commit": 0, "write": 0}
        self._under_way = {"commit": 0, "write": 0}

    def watched(
        self, whole: Callable[..., Awaitable[object]], thing: Thing
    ) -> Callable[..., Awaitable[object]]:
        async def call(store: SqliteStore, *args: Any, **options: Any) -> object:
            # Others may be under way: the next is the one after them, so none is passed over.
            self._pass_by("before", thing, self._seen[thing] + self._under_way[thing] + 1)
            self._under_way[thing] += 1
            try:
                result = await whole(store, *args, **options)
            finally:
                self._under_way[thing] -= 1
            self._seen[thing] += 1
            os.write(self._told, thing[:1].encode())
            self._pass_by("after", thing, self._seen[thing])
            return result

        return call

    def _pass_by(self, moment: Moment, thing: Thing, n: int) -> None:
        if self._kill == Kill(n, moment, thing):
            os.kill(os.getpid(), signal.SIGKILL)
