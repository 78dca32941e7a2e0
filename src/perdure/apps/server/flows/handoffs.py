"""The files of a handoff that waits for approval, each with a diff to an earlier version."""

from __future__ import annotations

import msgspec

from perdure.apps.server.flows.values import HandedFile
from perdure.errors import EntryNotFound
from perdure.session.codec import readable
from perdure.session.flows.kinds import HandoffStaged, HandoffTarget
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.stores.session_store import SessionStore
from perdure.tools.diff import diff_of

_SHOWN_BYTES = 512 * 1024
"""Maximum size of a file whose text is shown; larger files are shown without their text."""


async def staged_files(store: SessionStore, state: FlowState, node: str) -> list[HandedFile]:
    """Return the files of the handoff of `node` that waits for approval, with their stored content.

    A diff compares a file with the newest different content that was staged under its path.
    """
    found: dict[str, HandedFile] = {}
    staged = state.run.pending_handoff_approvals.get(node, ())
    earlier = await _versions(store, StreamId(state.run.flow_id)) if staged else {}
    for target in staged:
        known = found.get(target.artifact)
        if known is None:
            before = [each for each in earlier[target.artifact] if each != target.digest]
            found[target.artifact] = await _file(store, target, before)
        else:
            to = [*known.to, target.node]
            found[target.artifact] = msgspec.structs.replace(known, to=to)
    return list(found.values())


async def _versions(store: SessionStore, flow: StreamId) -> dict[str, list[str]]:
    """Return path -> the digests of the contents staged under this path, oldest first."""
    found: dict[str, list[str]] = {}
    for entry in await store.entries(flow, kind=HandoffStaged.kind):
        body = readable(entry)
        if isinstance(body, HandoffStaged):
            for target in body.targets:
                found.setdefault(target.artifact, []).append(target.digest or "")
    return found


async def _file(store: SessionStore, target: HandoffTarget, before: list[str]) -> HandedFile:
    content = await _content(store, target.digest)
    text = _text(content)
    old = _text(await _content(store, before[-1])) if before else None
    return HandedFile(
        path=target.artifact,
        to=[target.node],
        size_bytes=None if content is None else len(content),
        text=text,
        diff=None if text is None or old is None else diff_of(old, text, is_whole=True),
    )


async def _content(store: SessionStore, digest: str | None) -> bytes | None:
    try:
        return await store.blob(digest) if digest else None
    except EntryNotFound:
        return None


def _text(content: bytes | None) -> str | None:
    if content is None or len(content) > _SHOWN_BYTES:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
