"""Export a flow as a folder of A-Society: convert its logs to the files of that program.

The result maps paths to bytes; this module writes no files. Every export of the same logs and the
same record folder gives the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from perdure.errors import EntryNotFound, SessionNotFound
from perdure.interop.a_society.folder import FEED, FLOW, SELECTORS, TRANSCRIPT
from perdure.interop.a_society.record import RECORD, RecordFiles, read_record
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.feed import feed_of, merge_logs
from perdure.session.flows.fold import flow_state
from perdure.session.flows.kinds import (
    FindingsMade,
    FlowImported,
    HandoffMade,
    HandoffStaged,
    NodePassed,
)
from perdure.session.flows.role_session import role_session
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.stores.marks import marks_of
from perdure.stores.protocol import LogReader
from perdure.stores.session_store import SessionStore

_WRITTEN = ("record.yaml", "improvement.yaml")
"""Files that perdure itself, and no role, writes into a record folder."""

_NOT_WRITTEN = ("recordName", "recordSummary")
"""Fields of the state that are not exported: readers get them from the record's workflow file."""


class Exported(msgspec.Struct, frozen=True):
    """The files of an exported flow.

    Shape: `files` maps a path in the folder to the content of the file. `left_out` explains omitted
    files.
    """

    files: dict[str, bytes]
    left_out: tuple[str, ...] = ()


async def export_flow(store: SessionStore, flow: StreamId) -> Exported:
    """Return the files of `flow`: its state, roles, selectors and record folder.

    Raises: SessionNotFound if the flow does not exist. Raises CorruptLog if the stream is not a
    flow. Raises LimitExceeded if the record folder is too large.
    """
    log = decode_entries(await store.entries(flow))
    state = flow_state(log, marks_of(store).is_own)
    record = await _record(store, state, log)
    files = await _logs(store, flow, state, log)
    files |= {f"{RECORD}/{path}": content for path, content in record.files.items()}
    return Exported(files, tuple(record.left_out.values()))


async def _record(
    store: SessionStore, state: FlowState, log: Iterable[tuple[Entry, object]]
) -> RecordFiles:
    """Return the files of the record folder, and artifacts that are no longer in the folder.

    If the flow was received from others, its record folder is read only if the user named this
    folder.
    """
    handed = dict(_handed_over(log))
    folder = Path(state.run.record_folder_path)
    found = RecordFiles()
    if state.is_place_in_force and await asyncio.to_thread(folder.is_dir):
        is_own_folder = not Path(state.run.workspace_root).is_relative_to(folder)
        written = [name for name in _WRITTEN if (folder / name).is_file()]
        names = None if is_own_folder else [*handed, *written]
        found = await asyncio.to_thread(read_record, folder, names)
    files: dict[str, bytes] = {}
    for path, digest in handed.items():
        if path not in found.files:
            with suppress(EntryNotFound):
                files[path] = await store.blob(digest)
    left_out = {path: why for path, why in found.left_out.items() if path not in files}
    return RecordFiles(dict(sorted((files | found.files).items())), left_out)


def _handed_over(log: Iterable[tuple[Entry, object]]) -> Iterator[tuple[str, str]]:
    """Yield the path of each artifact and findings file, and the hash of its stored content."""
    for _, body in log:
        match body:
            case FlowImported():
                yield from body.record.items()
            case HandoffMade() | HandoffStaged() | NodePassed():
                yield from ((each.artifact, each.digest) for each in body.targets if each.digest)
            case FindingsMade(digest=str() as digest):
                yield body.findings, digest
            case _:
                pass


async def _logs(
    store: LogReader, flow: StreamId, state: FlowState, log: list[tuple[Entry, object]]
) -> dict[str, bytes]:
    """Return the flow's state, and the transcripts and feeds of its roles and selectors."""
    run = msgspec.to_builtins(state.run)
    # A node that is about to start is running in A-Society's state.
    run["runningNodes"] = [
        *(n for n in state.start if n not in run["runningNodes"]),
        *run["runningNodes"],
    ]
    files = {FLOW: _json({k: v for k, v in run.items() if k not in _NOT_WRITTEN})}
    for role, session in sorted(state.sessions.items()):
        said = await _remaining_entries(store, session)
        transcript = role_session(role, f"{flow}__{role}", said)
        files[f"roles/{role}/{TRANSCRIPT}"] = _json(msgspec.to_builtins(transcript))
        feed = feed_of(role, merge_logs(log, said))
        files[f"roles/{role}/{FEED}"] = _json(msgspec.to_builtins(feed))
    for role, chose in sorted(state.selectors.items()):
        for number, session in enumerate(chose, 1):
            transcript = role_session(role, session, await _remaining_entries(store, session))
            path = f"{SELECTORS}/{role}-{number}.json"
            files[path] = _json(msgspec.to_builtins(transcript))
    return files


async def _remaining_entries(store: LogReader, session: StreamId) -> list[tuple[Entry, object]]:
    """Return the remaining entries of `session`; none if the session was erased or removed."""
    try:
        return decode_entries(await store.entries(session))
    except SessionNotFound:
        return []


def decode_entries(entries: list[Entry]) -> list[tuple[Entry, object]]:
    """Return each entry with its body; erased entries are omitted."""
    return [(entry, body_of(entry)) for entry in entries if not entry.is_erased]


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)
