"""Store what a user trusts: the key for the user's marks, and trusted entries without a mark.

The folder ``perdure/trust`` in the user's data folder has three files. The file ``key`` contains 32
secret bytes, which perdure stores nowhere else. The file ``endorsed`` contains a digest of each
trusted entry that has no mark made with the key in the file ``key``. The file ``stores`` lists the
trusted stores with times, for people to read. The page docs/decisions/0017 explains this design.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure.client.lookup.store_files import data_folder
from perdure.errors import ConfigError
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowImported, FlowStarted
from perdure.session.ids import StreamId
from perdure.stores.access.lazy_modules import Later
from perdure.stores.fsync import create_private, make_folders, sync_folder
from perdure.stores.marks import KEY_BYTES, TURN_KINDS, Marks

if TYPE_CHECKING:
    from perdure.client.conversation import agent_binding
    from perdure.stores.session_store import SessionStore
else:
    agent_binding = Later("perdure.client.conversation.agent_binding")

_SOME = 500
"""The number of entries that are read at a time."""


class TrustedStore(msgspec.Struct, frozen=True):
    """A store that the user trusted. Units: `at` is Unix milliseconds."""

    address: str
    namespace: str
    at: int
    streams: int
    entries: int


class TrustFolder:
    """The folder that contains a user's key and trusted entries.

    Raises: ConfigError from every method that writes, if the folder cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._endorsed: tuple[int, frozenset[str]] | None = None

    def marks(self, *, is_trusted: bool, makes_key: bool = True) -> Marks:
        """Return the `Marks` of a store; if no key exists, marking the first entry creates a key.

        If the key cannot be created, a random key is used, so that only this process recognizes the
        entries that it has marked. With `makes_key` False, no key is created. While there is no
        key, no mark is recognized.
        """
        key = self._any_key if makes_key else self._key_or_random
        return Marks(key, is_trusted=is_trusted, endorsed=self._read_endorsed)

    async def trust(
        self, store: SessionStore, at: int, streams: Iterable[StreamId]
    ) -> TrustedStore:
        """Trust the entries that `streams` of `store` contain now.

        Durable: all changes are stored when this returns. Units: `at` is Unix milliseconds.
        """
        key = self._key() or self._made_key()
        marks = Marks(lambda: key, is_trusted=False)
        names = tuple(streams)
        endorsed: list[str] = []
        for stream in names:
            endorsed += marks.endorsements(await _with_authority(store, stream))
        self._append("endorsed", "".join(f"{digest}\n" for digest in endorsed))
        told = TrustedStore(store.address, store.namespace, at, len(names), len(endorsed))
        self._append("stores", msgspec.json.encode(told).decode() + "\n")
        return told

    def stores(self) -> list[TrustedStore]:
        """Return the trusted stores, oldest first; lines that cannot be read are skipped."""
        found: list[TrustedStore] = []
        with suppress(OSError, UnicodeDecodeError):
            for line in (self._folder / "stores").read_text("utf-8").splitlines():
                with suppress(msgspec.MsgspecError):
                    found.append(msgspec.json.decode(line, type=TrustedStore))
        return found

    # ------------------------------------------------------------ inside

    def _key(self) -> bytes | None:
        try:
            key = (self._folder / "key").read_bytes()
        except OSError:
            return None
        return key if len(key) == KEY_BYTES else None

    def _key_or_random(self) -> bytes:
        return self._key() or os.urandom(KEY_BYTES)

    def _any_key(self) -> bytes:
        try:
            return self._key() or self._made_key()
        except ConfigError:
            return os.urandom(KEY_BYTES)

    def _made_key(self) -> bytes:
        """Create a key, or return the key that another process created first."""
        draft = self._folder / f".key-{os.urandom(8).hex()}"
        with self._writable():
            try:
                create_private(draft, os.urandom(KEY_BYTES))
                with suppress(FileExistsError):
                    os.link(draft, self._folder / "key")
            finally:
                draft.unlink(missing_ok=True)
        key = self._key()
        if key is None:
            raise ConfigError(f"{self._folder / 'key'} holds no key; delete it to make another")
        return key

    def _append(self, name: str, text: str) -> None:
        file, flags = self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with self._writable(), os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())

    @contextmanager
    def _writable(self) -> Generator[None]:
        """Create the folder; inside the ``with`` block, an OSError becomes a ConfigError."""
        try:
            make_folders(self._folder)
            yield
            sync_folder(self._folder)  # the file might be new
        except OSError as error:
            raise ConfigError(f"cannot write to {self._folder}: {error.strerror}") from error

    def _read_endorsed(self) -> frozenset[str]:
        file = self._folder / "endorsed"
        try:
            size = file.stat().st_size
            if self._endorsed is None or self._endorsed[0] != size:
                self._endorsed = size, frozenset(file.read_text("ascii").split())
        except (OSError, UnicodeDecodeError):
            return frozenset()
        return self._endorsed[1]


def trust_folder() -> TrustFolder:
    """Return the folder with this user's trust keys. Raises: ConfigError without a home folder."""
    return TrustFolder(data_folder(os.environ, sys.platform) / "perdure" / "trust")


def own_marks(*, is_trusted: bool, makes_key: bool = True) -> Marks:
    """Return this user's `Marks` for a store; see `TrustFolder.marks`."""
    try:
        return trust_folder().marks(is_trusted=is_trusted, makes_key=makes_key)
    except ConfigError:  # then only this process recognizes its own writes
        key = os.urandom(KEY_BYTES)
        return Marks(lambda: key, is_trusted=is_trusted)


async def streams_of(store: SessionStore) -> list[StreamId]:
    """Return every session and flow of `store`."""
    sessions = await store.sessions(limit=None, scope="all")
    flows = await store.notes_of_all((FlowStarted.kind, FlowImported.kind))
    return [info.id for info in sessions] + list(dict.fromkeys(note.stream for note in flows))


async def _with_authority(store: SessionStore, stream: StreamId) -> list[Entry]:
    """Return the entries of `stream` that give permissions, such as agent bindings and turns."""
    state = await store.state(stream)
    is_flow = state.header.kind == "flow"
    found: list[Entry] = []
    after = -1
    while page := await store.entries(stream, after, _SOME):
        after = page[-1].seq
        in_turn = state.open_turn is not None and after >= state.open_turn
        for entry in page:
            is_told = entry.kind in TURN_KINDS or entry.kind in agent_binding.BINDING_KINDS
            is_open = in_turn and entry.seq >= (state.open_turn or 0)
            if is_told or is_open or (is_flow and entry.kind != FlowImported.kind):
                found.append(entry)
    return found
