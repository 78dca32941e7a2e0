"""The sessions of a folder: their files, their states, and the file indexes in memory.

The state of a session is part of the last `Batch` that perdure wrote, so the state is read from the
end of the file. If another program wrote after perdure's last batch, or if there is no batch, the
whole file is read once.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from perdure.codecs.protocol import Codec
from perdure.errors import FormatError, SessionNotFound, StoreTooNew, StoreUnavailable
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo, StreamHeader
from perdure.stores.jsonl.disk.folder import SUFFIX, Folder, Stamp, session_in
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.jsonl.lines import FORMAT, Batch, batch_info, envelope_of, fields_of
from perdure.stores.jsonl.rows import header_of, is_sound, own_header_of
from perdure.stores.protocol import StreamState
from perdure.stores.regular_files import NotRegular, open_to_read, status_of

MOST_LOGS = 64
"""Maximum number of indexes in memory; the least recently used one is dropped first."""

_TAIL_BYTES = 16_384
_MOST_TAIL_BYTES = 2**24


class FileState(msgspec.Struct, frozen=True):
    """The state of a session, as its file contains it.

    `leaf` and `open_turn` are seqs. Units: `payload` is in bytes.
    """

    header: StreamHeader
    head: int
    leaf: int | None
    open_turn: int | None
    hash: bytes
    info: SessionInfo
    payload: int


class SessionIndex:
    """The sessions of one folder; only one thread at a time may use this index."""

    def __init__(self, folder: Folder, codec: Codec) -> None:
        self.folder = folder
        self.codec = codec
        self._paths: dict[StreamId, Path] = {}
        self._logs: OrderedDict[Path, Log] = OrderedDict()
        self._standings: dict[Path, tuple[Stamp, FileState | None]] = {}

    # -- one session

    def log(self, stream: StreamId, *, is_thorough: bool = True) -> Log | None:
        """Return the session's current index; None if there is no such session.

        Raises: StoreTooNew, StoreUnavailable.
        """
        path = self.path(stream, is_thorough=is_thorough)
        return None if path is None else self._log(path)

    def require_log(self, stream: StreamId) -> Log:
        """Return the index of the session's file. Raises: SessionNotFound."""
        log = self.log(stream)
        if log is None:
            raise SessionNotFound(stream)
        return log

    def tail(self, stream: StreamId) -> Tail | None:
        """Return the end of the session's file.

        Return None if there is no such session, if the whole file was already read, or if the
        caller must read the whole file, for example because its header is not known yet.
        Raises: StoreTooNew, StoreUnavailable.
        """
        path = self.path(stream)
        if path is None or path in self._logs:
            return None
        known = self._standings.get(path)
        header = None if known is None or known[1] is None else known[1].header
        tail = Tail(path, self.codec)
        try:
            return tail if header is not None and tail.read(header) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(str(path), str(error)) from error

    def standing(self, stream: StreamId) -> FileState | None:
        """Return the state of the session; None if there is no such session.

        Raises: StoreTooNew, StoreUnavailable.
        """
        path = self.path(stream)
        if path is None:
            return None
        if path in self._logs:
            log = self._log(path)
            return None if log is None else standing_of(log)
        try:
            return self._standing(path, Stamp.of(status_of(path)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(str(path), str(error)) from error

    def path(self, stream: StreamId, *, is_thorough: bool = True) -> Path | None:
        """Return the session's file; None if there is no such session.

        Without `is_thorough`, the call trusts the session id in a file name and does not read the
        file.
        """
        known = self._paths.get(stream)
        with suppress(NotRegular):
            if known is not None and self._holds(known, stream):
                return known
        self._paths.pop(stream, None)
        names = self.folder.names()
        named = [self.folder.path / name for name in names if session_in(name) == stream]
        odd = [self.folder.path / name for name in names if session_in(name) is None]
        for path in (*sorted(named, reverse=True), *odd):
            try:
                if self._holds(path, stream):
                    return self.remember_path(stream, path)
            except NotRegular as error:  # not this session in any case
                if path in named:
                    self.folder.fail(error)
        if is_thorough:
            for path, standing in self.standings():
                if standing.header.id == stream:
                    return self.remember_path(stream, path)
        return None

    def session_at(self, path: Path) -> StreamId | None:
        """Return the session in the file `path`; None if it is no session file of the folder.

        If `path` is not in the folder, links in it are followed, because the caller chose this
        path. A link inside the folder is not followed.
        Raises: FormatError if the path is not a regular file; StoreTooNew, StoreUnavailable.
        """
        if not self._is_here(path):
            path = Path(os.path.realpath(path))
        if path.suffix != SUFFIX or not self._is_here(path):
            return None
        own = self.folder.path / path.name
        try:
            standing = self._standing(own, Stamp.of(status_of(own)))
        except FileNotFoundError:
            return None
        except NotRegular as error:
            remedy = ", or open the file it leads to" if own.is_symlink() else ""
            raise FormatError(str(path), f"{error}{remedy}") from error
        if standing is None:
            return None
        self.remember_path(standing.header.id, own)
        return standing.header.id

    def _is_here(self, path: Path) -> bool:
        return os.path.realpath(path.parent) == os.path.realpath(self.folder.path)

    def remember_path(self, stream: StreamId, path: Path) -> Path:
        """Remember that the file `path` contains the session."""
        self._paths[stream] = path
        return path

    def logs(self) -> tuple[Log, ...]:
        """Those indexes of session files that are in memory."""
        return tuple(self._logs.values())

    def forget(self, path: Path) -> None:
        """Forget the index of `path`: the next use reads the file again from its beginning."""
        self._logs.pop(path, None)
        self._standings.pop(path, None)

    def _holds(self, path: Path, stream: StreamId) -> bool:
        log = self._logs.get(path)
        if log is not None:
            return path.exists() and log.header.id == stream
        try:
            standing = self._standing(path, Stamp.of(status_of(path)))
        except FileNotFoundError:
            return False
        return standing is not None and standing.header.id == stream

    def _log(self, path: Path) -> Log | None:
        log = self._logs.pop(path, None) or Log(path, self.codec)
        if not log.refresh():
            return None
        self._logs[path] = log
        while len(self._logs) > MOST_LOGS:
            self._logs.popitem(last=False)
        return log

    # -- all sessions

    def has_log(self, path: Path) -> bool:
        """Return whether the index of `path` is in memory."""
        return path in self._logs

    def standing_in(self, path: Path, stamp: Stamp) -> FileState | None:
        """Return the state of the session in the file `path`; None if it contains no session.

        `stamp` is the file's current stamp. The call also returns None if a newer version of
        perdure wrote the session; opening the session then raises the error.
        Raises: StoreUnavailable.
        """
        try:
            return self._standing(path, stamp)
        except StoreTooNew:
            return None

    def standings(self) -> Iterator[tuple[Path, FileState]]:
        """Yield every file that contains a session, with its state."""
        found: set[Path] = set()
        for path, stamp in self.folder.files():
            found.add(path)
            standing = self.standing_in(path, stamp)
            if standing is not None:
                yield path, standing
        for gone in self._standings.keys() - found:
            self.forget(gone)

    def _standing(self, path: Path, stamp: Stamp) -> FileState | None:
        known = self._standings.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        standing = None if path in self._logs else peek(path, self.codec)
        if standing is None:
            log = self._log(path)
            standing = None if log is None else standing_of(log)
        self._standings[path] = (stamp, standing)
        return standing


def standing_of(log: Log) -> FileState:
    """Return the state of the file of `log`."""
    return FileState(log.header, log.head, log.leaf, log.open_turn, log.hash, log.info, log.payload)


def state_at(standing: FileState, epoch: int) -> StreamState:
    """Return the `StreamState` for the file state `standing` and the lease's `epoch`."""
    stream = standing.header.id
    leaf = standing.leaf
    return StreamState(
        header=standing.header,
        head=standing.head,
        leaf=None if leaf is None else EntryId(f"{stream}/{leaf}"),
        hash=standing.hash,
        epoch=epoch,
        open_turn=standing.open_turn,
        info=standing.info,
    )


def stream_in(path: Path, codec: Codec) -> StreamId | None:
    """Return the session id from the first line of `path`; None if the line has no id."""
    try:
        with open_to_read(path) as file:
            header = _header(file.readline(_MOST_TAIL_BYTES), b"", codec)
    except OSError:
        return None
    return None if header is None else header.id


def peek(path: Path, codec: Codec) -> FileState | None:
    """Return the session's state from the first two lines and the last line of its file.

    Return None if the three lines do not contain the state.
    """
    try:
        with open_to_read(path) as file:
            header = _header(file.readline(), file.readline(), codec)
            batch = None if header is None else _batch(_last_line(file), header)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(str(path), str(error)) from error
    if header is None or batch is None:
        return None
    return FileState(
        header=header,
        head=batch.first + batch.count - 1,
        leaf=batch.leaf,
        open_turn=batch.turn,
        hash=bytes.fromhex(batch.hash),
        info=batch_info(header, batch),
        payload=batch.payload,
    )


def _header(first: bytes, second: bytes, codec: Codec) -> StreamHeader | None:
    """Return the header from a file's first two lines; None if the whole file must be read."""
    envelope, own = envelope_of(first.strip()), envelope_of(second.strip())
    header = None if envelope is None else header_of(envelope, fields_of(first) or {}, codec)
    if header is None or own is None or own.ours is None:
        return header
    return None if own.ours.format > FORMAT else own_header_of(own.ours, header.id)


def _last_line(file: BinaryIO) -> bytes:
    """Return the last line of `file`; empty if the line is too long."""
    size = os.fstat(file.fileno()).st_size
    tail_bytes = _TAIL_BYTES
    while tail_bytes <= _MOST_TAIL_BYTES:
        start = max(0, size - tail_bytes)
        file.seek(start)
        tail = file.read(size - start).rstrip(b"\r\n")
        _, line_end, line = tail.rpartition(b"\n")
        if line_end or start == 0:
            return line
        tail_bytes *= 8
    return b""


def _batch(line: bytes, header: StreamHeader) -> Batch | None:
    envelope = envelope_of(line) if line else None
    ours = None if envelope is None else envelope.ours
    if ours is None or ours.batch is None or ours.of != header.id:
        return None
    return ours.batch if is_sound(ours.batch, ours.batch.count) else None
