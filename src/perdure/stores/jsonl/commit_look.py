"""Find the sessions of a folder that changed since the last poll, for the watcher thread.

Every commit of perdure adds a line to the feed, which is cheap to poll. Writes of other programs
are found in the session files, which are polled less often.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from perdure.codecs.protocol import Codec
from perdure.session.ids import StreamId
from perdure.stores.jsonl.disk.feed import Feed, span_of
from perdure.stores.jsonl.disk.folder import Folder, Stamp
from perdure.stores.jsonl.session_index import stream_in
from perdure.stores.regular_files import open_to_read
from perdure.stores.wakeups import Place

FILES_POLL_S = 1.0
"""How often the session files are polled."""


class CommitLook:
    """Polls a folder; each call returns the sessions written since the previous call."""

    def __init__(self, folder: Folder, feed: Feed, codec: Codec, namespace: str) -> None:
        self._folder, self._feed, self._namespace = folder, feed, namespace
        self._codec = codec
        self._stamp: Stamp | None = None
        self._files: dict[Path, Stamp] = dict(folder.files())
        self._waited_s = 0.0

    def __call__(self, since_s: float) -> Collection[Place] | None:
        try:
            streams = {*self._in_feed(), *self._in_files(since_s)}
        except _UnknownStream:
            return None
        return [(self._namespace, stream) for stream in streams]

    def _in_feed(self) -> set[StreamId]:
        before, self._stamp = self._stamp, self._feed.stamp()
        if before == self._stamp:
            return set()
        if before is None or self._stamp is None:
            raise _UnknownStream
        if before.inode != self._stamp.inode or before.size > self._stamp.size:
            raise _UnknownStream
        try:
            with open_to_read(self._feed.path, buffering=0) as file:
                added = os.pread(file.fileno(), self._stamp.size - before.size, before.size)
        except OSError:
            raise _UnknownStream from None
        spans = [span_of(line) for line in added.splitlines()]
        if not added.endswith(b"\n") or None in spans:
            raise _UnknownStream
        return {span.stream for span in spans if span is not None}

    def _in_files(self, since_s: float) -> set[StreamId]:
        self._waited_s += since_s
        if self._waited_s < FILES_POLL_S:
            return set()
        before, self._files, self._waited_s = self._files, dict(self._folder.files()), 0.0
        if before.keys() - self._files.keys():
            raise _UnknownStream
        changed = self._files.items() - before.items()
        return {self._stream_in(path) for path, _ in changed}

    def _stream_in(self, path: Path) -> StreamId:
        stream = stream_in(path, self._codec)
        if stream is None:
            raise _UnknownStream
        return stream


class _UnknownStream(Exception):
    """A write belongs to an unknown stream, so every waiting iterator must be woken."""
