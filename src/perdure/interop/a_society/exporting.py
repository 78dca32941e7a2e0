"""A flow as a folder of A-Society's: what its logs say, as the files that program keeps.

Path -> bytes; nothing is written here. The same logs give the same bytes.
"""

from __future__ import annotations

import msgspec

from perdure.interop.a_society.folder import FEED, FLOW, SELECTORS, TRANSCRIPT
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.feed import feed_of, merged
from perdure.session.flows.fold import flow_state
from perdure.session.flows.role_session import role_session
from perdure.session.ids import StreamId
from perdure.stores.protocol import LogReading

_NOT_WRITTEN = ("recordName", "recordSummary")
"""Fields of the state that its readers take from the record's workflow."""


async def export_flow(store: LogReading, flow: StreamId) -> dict[str, bytes]:
    """The files of `flow`, by their paths in its folder.

    Raises: SessionNotFound; CorruptLog when it is no flow.
    """
    log = decoded(await store.entries(flow))
    state = flow_state(log)
    run = msgspec.to_builtins(state.run)
    files = {FLOW: _json({k: v for k, v in run.items() if k not in _NOT_WRITTEN})}
    for role, session in sorted(state.sessions.items()):
        said = decoded(await store.entries(session))
        transcript = role_session(role, f"{flow}__{role}", said)
        files[f"roles/{role}/{TRANSCRIPT}"] = _json(msgspec.to_builtins(transcript))
        feed = feed_of(role, merged(log, said))
        files[f"roles/{role}/{FEED}"] = _json(msgspec.to_builtins(feed))
    for role, chose in sorted(state.selectors.items()):
        for number, session in enumerate(chose, 1):
            transcript = role_session(role, session, decoded(await store.entries(session)))
            path = f"{SELECTORS}/{role}-{number}.json"
            files[path] = _json(msgspec.to_builtins(transcript))
    return files


def decoded(entries: list[Entry]) -> list[tuple[Entry, object]]:
    """Each entry with its body; what was erased is left out."""
    return [(entry, body_of(entry)) for entry in entries if not entry.is_erased]


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)
