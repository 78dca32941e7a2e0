"""A store with every kind of content, and one word in every place that contains text.

This store serves tests of stored data (golden databases) and of data that must be unreadable
(encryption).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.session.codec import encode, new_side, new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import OPAQUE, BranchSummary, Compaction, Custom, ModelChange
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import (
    MediaPart,
    Message,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import ImportSource, Label, LeafMoved, SessionInfoChanged
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import START_MS

FIRST, TREE_FORK, PATH_FORK, OPEN, FLOW = map(StreamId, ("first", "tree", "path", "open", "flow"))
STREAMS = (FIRST, TREE_FORK, PATH_FORK, OPEN, FLOW)
LARGE = 20_000


def original(word: str) -> bytes:
    """An imported file, which compresses well."""
    return b"".join(encode({"line": number, "text": word}) + b"\n" for number in range(2_000))


def picture(word: str) -> bytes:
    """A medium, which does not compress."""
    return word.encode() + b"".join(
        bytes.fromhex(blob_hash(f"{word} {number}".encode()).removeprefix("sha256-"))
        for number in range(100)
    )


async def plant(store: SessionStore, word: str) -> None:
    """Fill `store`; `word` is in its messages, names, notes, contents and partial answers."""
    await _first(store, word)
    await _forks(store, word)
    await _open_turn(store, word)
    header = StreamHeader(FLOW, START_MS, "flow", title=f"flow {word}")
    await _commit(store, Write(stream=FLOW, create=header))


async def _first(store: SessionStore, word: str) -> None:
    header = StreamHeader(
        FIRST,
        START_MS,
        cwd=f"/home/{word}",
        title=f"title {word}",
        metadata={"note": word, word: 1},
    )
    medium = MediaPart("image/png", f"media://{blob_hash(picture(word))}", len(picture(word)))
    content = original(word)
    entries = (
        new_tree(user(f"user {word}", medium), alias=f"alias-{word}"),
        new_tree(
            assistant(thinking(f"thinking {word}"), tool_call("c1", "read", {"path": word})),
            at=START_MS + 1,
        ),
        new_tree(tool_result("c1", f"result {word} " + word * (LARGE // len(word)))),
        new_tree(ModelChange("scripted:echo")),
        new_tree(assistant(f"answer {word}")),
        new_side(Label(f"label {word}"), Sibling(0)),
        new_side(SessionInfoChanged(title=f"renamed {word}")),
        new_side(_source(content, word)),
        NewEntry(OPAQUE, b"\xff not JSON " + word.encode()),
        NewEntry("from_the_future", encode({"text": word}), 7),
    )
    write = Write(stream=FIRST, create=header, entries=entries)
    await _commit(store, write, key=f"key {word}", blobs=(content, picture(word)))
    more = (new_tree(Compaction(f"gist {word}", EntryId("first/4"))), new_tree(user("on")))
    await _commit(store, Write(stream=FIRST, entries=more))
    back = (
        new_side(LeafMoved(EntryId("first/0"))),
        new_tree(BranchSummary(f"left {word}", EntryId("first/4"))),
        new_tree(Custom("state", {"word": word})),
    )
    await _commit(store, Write(stream=FIRST, entries=back))


def _source(content: bytes, word: str) -> ImportSource:
    return ImportSource(
        format="pi",
        name=f"{word}.jsonl",
        blob=blob_hash(content),
        offset=0,
        length=len(content),
        first_line=1,
        lines=2_000,
    )


async def _forks(store: SessionStore, word: str) -> None:
    state = await store.state(FIRST)
    tree = ForkPoint(FIRST, state.leaf, state.head, "tree")
    await _said(store, StreamHeader(TREE_FORK, START_MS, fork=tree), user(f"in the tree {word}"))
    path = ForkPoint(FIRST, EntryId("first/4"), state.head, "path")
    await _said(store, StreamHeader(PATH_FORK, START_MS, fork=path), user(f"on the path {word}"))


async def _open_turn(store: SessionStore, word: str) -> None:
    await _said(store, StreamHeader(OPEN, START_MS), user(f"go {word}"))
    lease = await store.acquire_lease(OPEN, f"owner {word}", 60_000)
    begin = (new_side(TurnStarted(1, "agent")), new_tree(user(f"turn {word}")))
    await _commit(store, Write(stream=OPEN, entries=begin, lease=lease))
    await _commit(store, Write(stream=OPEN, entries=(new_tree(user(f"queued {word}")),)))
    end = (new_side(TurnFinished("stop")), new_side(TurnStarted(2, "agent")))
    await _commit(store, Write(stream=OPEN, entries=end[:1], lease=lease))
    await _commit(store, Write(stream=OPEN, entries=end[1:], lease=lease))
    await store.put_partial(lease, 5, f"partial {word}".encode())


async def _said(store: SessionStore, header: StreamHeader, message: Message) -> None:
    await _commit(store, Write(stream=header.id, create=header, entries=(new_tree(message),)))


async def _commit(
    store: SessionStore, write: Write, *, key: str | None = None, blobs: tuple[bytes, ...] = ()
) -> None:
    await store.commit(Commit(writes=(write,), at=START_MS, idempotency_key=key, blobs=blobs))


async def content_of(store: SessionStore, word: str) -> bytes:
    """Return everything that `plant` wrote, as lines of JSON that tests can compare."""
    listed = [_as_then(info, _INFO) for info in await store.sessions(scope="all")]
    lines: list[object] = [await store.feed(0), listed]
    for stream in STREAMS:
        state = await store.state(stream)
        window = await store.context_window(stream, state.leaf)
        lines += [
            {**_as_then(state, _STATE), "info": _as_then(state.info, _INFO)},
            [entry.id for entry in await store.tree(stream)],
            [entry.id for entry in await store.branch(stream, state.leaf)],
            [entry.id for entry in window.entries],
            [entry.id for entry in await store.notes(stream, ["label", "queued", "turn_started"])],
            await store.aliases(stream),
            await store.partial(stream),
        ]
    for content in (original(word), picture(word)):
        kept = await store.blob(blob_hash(content))
        lines.append([len(kept), blob_hash(kept)])
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


_INFO = ("subject", "metadata", "model", "open_turn", "source")
_STATE = ("lease",)


def _as_then(value: object, later: Sequence[str]) -> dict[str, object]:
    """Return the fields of `value` except `later`, which older files do not contain."""
    fields: dict[str, object] = msgspec.to_builtins(value)
    return {name: held for name, held in fields.items() if name not in later}
