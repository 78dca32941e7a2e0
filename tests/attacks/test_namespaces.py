"""No call of any store shows, changes or finds anything of another namespace.

The tests call every public method of every backend with ids of the other namespace. If a new method
is not listed here, a test fails. A planted leak first proves that the tests detect leaks.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import msgspec
import pytest

from perdure.apps.cli.exits import USAGE
from perdure.apps.cli.main import main
from perdure.apps.maintenance.stats import figures
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.agents.session_usage import revoke, standing_of
from perdure.client.clock import Outside, SystemClock, system_random
from perdure.client.flows.flows import Flows
from perdure.client.memory.handle import Memory
from perdure.client.open import open as open_store
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.errors import PerdureError
from perdure.session.codec import encode, new_side, new_tree
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.messages import user
from perdure.session.notes import GrantRevoked, Note, Question, SessionInfoChanged
from perdure.session.search.values import SearchQuery
from perdure.stores.protocol import Commit, Lease, Write
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.retention.policy import Retention
from perdure.stores.retention.quotas import Quota
from perdure.stores.search.vectors import VectorModel
from tests.conformance.store.backends import Backend
from tests.fakes.clock import START_MS, ManualClock
from tests.fakes.command_lines import line_of, ordered
from tests.fakes.marked_log import MARK, plant_marks
from tests.fakes.planted import FIRST, FLOW, OPEN, original, picture, plant
from tests.fakes.samples import ALL_ONLY, with_larger

STORES = ("memory", "sqlite", "postgres", "jsonl-operator")
WORD = "xyzzyplugh"
"""The word in every text of the other namespace."""

NOBODY = StreamId("nobody")
ENTRY = EntryId("first/0")
OUTSIDE = Outside(SystemClock(), system_random)
LEASE = Lease(OPEN, f"owner {WORD}", 1, START_MS + 60_000)
ASKED = EraseRequest(id="e-ours", scope="session", by="us", at=START_MS, name=FIRST, forks="erase")
MODEL = VectorModel("model", 8)
FILES = {
    "open": "makes a handle; the matrix itself opens two namespaces",
    "sharing": "makes a handle of another namespace, for who holds the memory itself",
    "close": "is called by the fixture",
    "changes": "wakes, and says nothing of what changed",
    "share": "connects a bus; its tables are tried in tests/integration/postgres/test_isolation.py",
    "retention.give_back": "gives free pages of the file back",
    "retention.remember_backup": "a backup of a file holds all namespaces: its place is the file's",
    "retention.backups": "a backup of a file holds all namespaces: its place is the file's",
    "position": "a number",
}
"""Methods that the matrix omits, each with the reason."""

Call = Callable[[Any, StreamId], Awaitable[object]]


def file_below(address: str, session: StreamId) -> Path:
    """Return the file of `session` in any namespace of the folder at `address`."""
    folder = Path(unquote(urlsplit(address).path[1:]))
    return next(folder.rglob(f"*_{session}.jsonl"), folder / "missing.jsonl")


def writing(stream: StreamId, **changes: Any) -> Commit:
    entries = (new_tree(user("ours")),)
    return Commit(writes=(Write(stream=stream, entries=entries, **changes),), at=START_MS)


def forking(stream: StreamId) -> Commit:
    point = ForkPoint(stream, EntryId(f"{stream}/0"), 0, "path")
    header = StreamHeader(StreamId(f"fork-of-{stream}"), START_MS, fork=point)
    return Commit(writes=(Write(stream=header.id, create=header),), at=START_MS)


def replaying(_: StreamId) -> Commit:
    """Commit with the other namespace's idempotency key."""
    return msgspec.structs.replace(writing(StreamId("own")), idempotency_key=f"key {WORD}")


def of(stream: StreamId, entry: int = 0) -> EntryId:
    return EntryId(f"{stream}/{entry}")


CALLS: dict[str, list[Call]] = {
    "acquire_lease": [lambda s, id: s.acquire_lease(id, "us", 1_000)],
    "aliases": [lambda s, id: s.aliases(id)],
    "around": [
        lambda s, id: s.around(id, of(id), [of(id)], 2),
        lambda s, id: s.around(StreamId("own"), of(id), [of(id)], 2),
    ],
    "blob": [
        lambda s, _: s.blob(blob_hash(original(WORD))),
        lambda s, _: s.blob(blob_hash(picture(WORD))),
    ],
    "branch": [
        lambda s, id: s.branch(id, of(id)),
        lambda s, id: s.branch(StreamId("own"), of(id)),
    ],
    "commit": [
        lambda s, id: s.commit(writing(id)),
        lambda s, id: s.commit(writing(id, expected_head=0)),
        lambda s, id: s.commit(writing(id, lease=LEASE)),
        lambda s, id: s.commit(forking(id)),
        lambda s, id: s.commit(replaying(id)),
        lambda s, id: s.commit(
            Commit(
                writes=(
                    Write(
                        stream=StreamId("own"),
                        entries=(new_tree(user("on theirs"), parent=of(id)),),
                    ),
                ),
                at=START_MS,
            )
        ),
    ],
    "context_window": [
        lambda s, id: s.context_window(id, of(id)),
        lambda s, id: s.context_window(StreamId("own"), of(id)),
    ],
    "entries": [
        lambda s, id: s.entries(id),
        lambda s, id: s.entries(id, kind="message", before=10),
    ],
    "entries_named": [
        lambda s, _: s.entries_named(f"alias-{WORD}"),
        lambda s, id: s.entries_named(of(id)),
    ],
    "entry": [
        lambda s, id: s.entry(id, of(id)),
        lambda s, id: s.entry(StreamId("own"), of(id)),
    ],
    "retention.erase": [
        lambda s, id: s.retention.erase(msgspec.structs.replace(ASKED, name=id)),
        lambda s, _: s.retention.erase(
            EraseRequest(id="e2", scope="subject", by="us", at=START_MS, name=WORD)
        ),
    ],
    "retention.erasures": [lambda s, _: s.retention.erasures()],
    "feed": [lambda s, _: s.feed(0)],
    "find": [lambda s, id: s.find(id), lambda s, id: s.find(id[:3])],
    "session_at": [lambda s, id: s.session_at(file_below(s.address, id))],
    "find_entry": [
        lambda s, id: s.find_entry(id, "0"),
        lambda s, id: s.find_entry(StreamId("own"), of(id)),
        lambda s, _: s.find_entry(StreamId("own"), f"alias-{WORD}"),
    ],
    "retention.forget_keys": [lambda s, _: s.retention.forget_keys(START_MS * 2)],
    "retention.holdings": [lambda s, _: s.retention.holdings()],
    "retention.holder": [lambda s, id: s.retention.holder(id)],
    "idle_sessions": [lambda s, _: s.idle_sessions(START_MS * 2)],
    "open_turns": [lambda s, _: s.open_turns()],
    "search.add_vectors": [lambda s, _: s.search.add_vectors(MODEL, (0, 1), {1: b"\\x01" * 8})],
    "search.drop_vectors": [lambda s, _: s.search.drop_vectors(MODEL)],
    "search.unembedded": [lambda s, _: s.search.unembedded(MODEL)],
    "search.vector_models": [lambda s, _: s.search.vector_models()],
    "search.index": [lambda s, _: s.search.index()],
    "info": [lambda s, _: s.info()],
    "retention.is_due": [
        lambda s, _: s.retention.is_due(Retention(max_age_s=1)),
        lambda s, _: s.retention.is_due(Retention(max_idle_s=1)),
        lambda s, _: s.retention.is_due(Retention(max_sessions=1)),
        lambda s, _: s.retention.is_due(Retention(max_bytes=1)),
    ],
    "maintenance.measure": [lambda s, _: s.maintenance.measure(0)],
    "newest": [lambda s, id: s.newest(id, limit=9)],
    "notes": [lambda s, id: s.notes(id, ("label", "session_info", "question", "queued"))],
    "notes_of_all": [
        lambda s, _: s.notes_of_all(("label", "session_info", "question", "queued")),
        lambda s, id: s.notes_of_all(("label", "session_info", "question", "queued"), [id]),
    ],
    "open_questions": [lambda s, id: s.open_questions(id)],
    "open_of_all": [lambda s, _: s.open_of_all("question")],
    "partial": [lambda s, id: s.partial(id)],
    "put_partial": [lambda s, id: s.put_partial(_lease(id), 5, b"ours")],
    "retention.quota": [lambda s, _: s.retention.quota()],
    "maintenance.receive": [],
    "search.recall": [lambda s, _: Memory(s, OUTSIDE).recall(WORD, scope="namespace")],
    "search.reindex": [lambda s, _: s.search.reindex()],
    "release_lease": [lambda s, id: s.release_lease(_lease(id))],
    "retention.remove": [lambda s, id: s.retention.remove(id)],
    "renew_lease": [lambda s, id: s.renew_lease(_lease(id), 1_000)],
    "resolve": [
        lambda s, id: s.resolve(id, of(id)),
        lambda s, id: s.resolve(StreamId("own"), of(id)),
        lambda s, _: s.resolve(StreamId("own"), f"alias-{WORD}"),
    ],
    "resolved": [
        lambda s, id: s.resolved(id, of(id)),
        lambda s, _: s.resolved(StreamId("own"), f"alias-{WORD}"),
    ],
    "retention.policy": [lambda s, _: s.retention.policy()],
    "maintenance.salvage_namespace": [lambda s, _: s.maintenance.salvage_namespace()],
    "search.scan": [lambda s, _: s.search.hits(SearchQuery(text=WORD))],
    "maintenance.read_segment": [lambda s, id: s.maintenance.read_segment(id, after=-1, upto=9)],
    "search.hits": [
        lambda s, _: s.search.hits(SearchQuery(text=WORD)),
        lambda s, id: s.search.hits(SearchQuery(text=WORD, sessions=(id,))),
    ],
    "visible_ids": [
        lambda s, id: s.visible_ids(id, [of(id)]),
        lambda s, id: s.visible_ids(StreamId("own"), [of(id)]),
    ],
    "sessions": [
        lambda s, _: s.sessions(limit=None, scope="all"),
        lambda s, _: s.sessions(limit=None, scope="all", query=WORD),
        lambda s, _: s.sessions(limit=None, scope="all", cwd=f"/home/{WORD}"),
    ],
    "retention.set_quota": [lambda s, _: s.retention.set_quota(Quota(max_sessions=3))],
    "retention.set_policy": [lambda s, _: s.retention.set_policy(Retention(max_sessions=3))],
    "maintenance.segment_states": [lambda s, _: s.maintenance.segment_states()],
    "state": [lambda s, id: s.state(id)],
    "tail": [lambda s, id: s.tail(id, 9, ("label", "question")), lambda s, id: s.tail(id, 0)],
    "tree": [lambda s, id: s.tree(id)],
    "maintenance.check_writable": [lambda s, _: s.maintenance.check_writable()],
    "maintenance.vacuum": [lambda s, _: s.maintenance.vacuum()],
    "maintenance.verify": [lambda s, _: s.maintenance.verify()],
}
LAST = ("vacuum", "forget_keys", "erase", "set_quota", "set_retention", "reindex")


def _lease(stream: StreamId) -> Lease:
    return msgspec.structs.replace(LEASE, stream=stream)


class Two:
    """Two namespaces of one store: `ours`, nearly empty, and the other, full of `WORD`."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self.ours = ours
        self.theirs = theirs

    async def fill(self) -> None:
        await plant(self.theirs, WORD)
        asked = Question(topic="approval", text=f"May {WORD}?", choices=("allow", "deny"))
        notes = (new_side(asked), new_side(GrantRevoked(f"run_command {WORD}")))
        await self.theirs.commit(Commit(writes=(Write(stream=FIRST, entries=notes),), at=START_MS))
        gone = StreamHeader(StreamId(f"gone-{WORD}"), START_MS, subject=WORD)
        await self.theirs.commit(Commit(writes=(Write(stream=gone.id, create=gone),), at=START_MS))
        await self.theirs.retention.erase(
            EraseRequest(id="e1", scope="session", by=WORD, at=START_MS, name=gone.id)
        )
        await self.theirs.retention.set_quota(Quota(max_sessions=777))
        await self.theirs.retention.set_policy(Retention(max_sessions=778))
        for id in ("own", "open"):  # one of them has the id of a session of the other namespace
            header = StreamHeader(StreamId(id), START_MS, title="ours")
            entries = (new_tree(user("ours")), new_side(SessionInfoChanged(title="ours")))
            write = Write(stream=header.id, create=header, entries=entries)
            await self.ours.commit(Commit(writes=(write,), at=START_MS))


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """The backend named by the test's parameter."""
    name = cast("str", request.param)
    server = request.getfixturevalue("warm_postgres") if name == "postgres" else None
    return Backend(name, tmp_path, ManualClock(), server)


@pytest.fixture
async def two(backend: Backend) -> AsyncIterator[Two]:
    """Two namespaces, filled."""
    data = backend.new()
    made = Two(await data.open("ours"), await data.open("theirs"))
    await made.fill()
    yield made
    await data.close()


async def told(call: Call, store: Any, stream: StreamId) -> str:
    """Return everything that `call` returns or raises, as text."""
    try:
        found = await call(store, stream)
    except PerdureError as error:
        return f"{type(error).__name__} {error} {encode(msgspec.to_builtins(error.facts()))!r}"
    return repr(found)


async def leaks_of(two: Two, tried: list[str]) -> list[str]:
    """Return the calls of `two.ours` that reveal something of the other namespace."""
    methods = {
        f"{service}.{name}" if service else name
        for service in ("", "search", "retention", "maintenance")
        for name, _ in inspect.getmembers(getattr(two.ours, service, two.ours), callable)
        if not name.startswith("_")
    }
    unknown = methods - set(CALLS) - set(FILES)
    assert not unknown, f"say in CALLS how these are tried: {sorted(unknown)}"
    leaks: list[str] = []
    order = sorted(methods & set(CALLS), key=lambda name: (name in LAST, name))
    for name in order:
        for number, call in enumerate(CALLS[name]):
            tried.append(f"{name} {number}")
            known = (await told(call, two.ours, FIRST)).replace(f"alias-{WORD}", "alias")
            invented = await told(call, two.ours, NOBODY)
            if f"{FIRST}/" in invented:
                leaks.append(f"{name} {number} tells: {invented[:300]}")
            invented = (
                invented.replace(f"alias-{WORD}", "alias")
                .replace(NOBODY, FIRST)
                .replace(NOBODY[:3], FIRST[:3])
            )
            if WORD in known or ("77" in known and name in ("quota", "retention")):
                leaks.append(f"{name} {number} tells: {known[:300]}")
            elif "NotFound" in invented and known != invented:
                leaks.append(f"{name} {number} differs: {known[:150]} | {invented[:150]}")
    return leaks


@pytest.mark.parametrize(
    "backend",
    [pytest.param(each, marks=() if each == "sqlite" else ALL_ONLY) for each in STORES],
    indirect=True,
)
async def test_leak_check_of_namespaces_detects_a_planted_leak(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two.ours, "sessions", two.theirs.sessions)
    monkeypatch.setattr(two.ours, "state", two.theirs.state)
    monkeypatch.setattr(two.ours, "entries_named", two.theirs.entries_named)
    leaks = await leaks_of(two, [])
    assert any(leak.startswith("sessions 0 tells") for leak in leaks)
    assert any(leak.startswith("state 0 tells") for leak in leaks)
    assert any(leak.startswith("entries_named 0 tells") for leak in leaks)


@pytest.mark.parametrize("backend", STORES, indirect=True)
async def test_call_with_ids_of_another_namespace_finds_and_changes_nothing(two: Two) -> None:
    before = await two.theirs.feed(0)
    kept = await two.theirs.partial(OPEN), await two.theirs.state(OPEN)
    tried: list[str] = []
    leaks = await leaks_of(two, tried)
    assert not leaks, "\n".join(leaks)
    assert len(tried) >= 50
    assert await two.theirs.feed(0) == before
    assert (await two.theirs.partial(OPEN), await two.theirs.state(OPEN)) == kept
    assert len(await two.theirs.search.hits(SearchQuery(text=WORD))) > 5
    assert (await two.theirs.retention.quota())[0] == Quota(max_sessions=777)
    assert await two.theirs.retention.policy() == Retention(max_sessions=778)
    assert len(await two.theirs.retention.erasures()) == 1
    assert (await two.theirs.maintenance.verify()).is_ok
    for content in (original(WORD), picture(WORD)):
        assert await two.theirs.blob(blob_hash(content)) == content


# -- through the handles that programs use


async def _watched(events: Any) -> list[object]:
    found: list[object] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            found += [event async for event in events]
    return found


async def _resumed(store: Store, session: str) -> object:
    async with Runtime(store) as runtime:
        return await runtime.resume(session, Agent("helper", model="scripted:echo"))


async def _own(store: Store, call: Callable[[Session], Awaitable[object]]) -> object:
    return await call(await store.open("own"))


async def _committed(store: Store, parent: EntryId) -> object:
    own = await store.open("own")
    return await store.commit([(own, [user("x")], {"parent": parent})])


async def _exported(store: Store) -> object:
    with tempfile.TemporaryDirectory() as folder:
        files = await store.export("perdure", folder)
        whole = [each.path for each in files if each.path is not None]
        return [await asyncio.to_thread(path.read_bytes) for path in whole]


PUBLIC: dict[str, list[Call]] = {
    "activity": [lambda s, _: s.activity()],
    "answer": [lambda s, id: s.answer(of(id, 3), "allow", by="us")],
    "continue_recent": [lambda s, _: s.continue_recent(cwd=f"/home/{WORD}")],
    "edits": [lambda s, _: s.edits(), lambda s, id: s.edits(session=id)],
    "erase": [
        lambda s, id: s.erase(id, forks="erase"),
        lambda s, _: s.erase(subject=WORD),
    ],
    "erasures": [lambda s, _: s.erasures()],
    "content": [
        lambda s, _: s.content(f"media://{blob_hash(original(WORD))}"),
        lambda s, _: s.content(f"media://{blob_hash(picture(WORD))}"),
    ],
    "commit": [lambda s, id: _committed(s, of(id))],
    "entry": [lambda s, id: s.entry(of(id)), lambda s, _: s.entry(f"alias-{WORD}")],
    "export": [lambda s, _: _exported(s)],
    "find": [lambda s, id: s.find(id), lambda s, id: s.find(id[:3])],
    "index": [lambda s, _: s.index()],
    "info": [lambda s, _: s.info()],
    "open": [lambda s, id: s.open(id)],
    "questions": [lambda s, _: s.questions()],
    "recent": [
        lambda s, _: s.recent(None, scope="all"),
        lambda s, _: s.recent(None, query=WORD),
        lambda s, _: s.recent(None, cwd=f"/home/{WORD}"),
    ],
    "reindex": [lambda s, _: s.reindex()],
    "search": [
        lambda s, _: s.search(WORD),
        lambda s, id: s.search(WORD, sessions=[id]),
    ],
    "tool_calls": [lambda s, _: s.tool_calls(), lambda s, id: s.tool_calls(session=id)],
    "usage": [lambda s, _: s.usage("project"), lambda s, _: s.usage("session")],
    "verify": [lambda s, _: s.verify()],
    "watch": [lambda s, _: _watched(s.watch(after=0))],
    # not methods of `Store`, but given one
    "memory.recall": [
        lambda s, _: s.memory.recall(WORD, scope="namespace"),
        lambda s, _: s.memory.recall(WORD, subject=WORD),
        lambda s, id: s.memory.recall(WORD, sessions=[id], scope="namespace"),
    ],
    "figures": [lambda s, _: figures(s)],
    "revoke": [revoke],
    "standing_of": [standing_of],
    "Runtime.resume": [_resumed],
    "Flows": [
        lambda s, _: Flows(Runtime(s)).list(),
        lambda s, _: Flows(Runtime(s)).open(FLOW),
        lambda s, _: Flows(Runtime(s)).state(FLOW),
        lambda s, _: Flows(Runtime(s)).outputs(FLOW),
        lambda s, _: Flows(Runtime(s)).delete(FLOW),
        lambda s, _: _watched(Flows(Runtime(s)).look(FLOW).feed("owner")),
        lambda s, _: Flows(Runtime(s)).look(FLOW).waiting(),
        lambda s, _: Flows(Runtime(s)).look(FLOW).reply("ours"),
    ],
    "Session": [
        lambda s, id: _own(s, lambda own: own.append(user("x"), parent=of(id))),
        lambda s, id: _own(s, lambda own: own.append_many([user("x")], expected_leaf=of(id))),
        lambda s, id: _own(s, lambda own: own.branch(of(id))),
        lambda s, id: _own(s, lambda own: own.branch_with_summary(of(id), "x")),
        lambda s, id: _own(s, lambda own: own.label(of(id), "x")),
        lambda s, id: _own(s, lambda own: own.pin(of(id))),
        lambda s, id: _own(s, lambda own: own.unpin(of(id))),
        lambda s, id: _own(s, lambda own: own.fork(at=of(id))),
        lambda s, id: _own(s, lambda own: own.answer(of(id, 3), "allow", by="us")),
        lambda s, id: _own(s, lambda own: own.path(of(id))),
        lambda s, id: _own(s, lambda own: own.path(of(id), last=1, kind="message")),
        lambda s, id: _own(s, lambda own: own.entry(of(id))),
        lambda s, id: _own(s, lambda own: own.entry(f"alias-{WORD}")),
        lambda s, id: _own(s, lambda own: own.note(Note("x"), about=of(id))),
        lambda s, id: _own(s, lambda own: own.export("html", leaf=of(id))),
        lambda s, id: _own(s, lambda own: own.left_by(of(id))),
        lambda s, id: _own(s, lambda own: own.uncompact(of(id))),
        lambda s, id: _own(s, lambda own: own.find(of(id))),
    ],
}
UNTRIED = {
    "create": "makes a session of our own, whatever its id",
    "open_or_create": "makes a session of our own, whatever its id",
    "import_files": "reads files, into a session of our own",
    "close": "is called by the test",
}


@pytest.mark.parametrize("backend", STORES, indirect=True)
async def test_public_call_with_ids_of_another_namespace_finds_nothing(two: Two) -> None:
    store = Store(two.ours, OUTSIDE)
    methods = {name for name, _ in inspect.getmembers(Store, callable) if name[0] != "_"}
    assert methods <= set(PUBLIC) | set(UNTRIED), "say in PUBLIC how these are tried"
    before = await two.theirs.feed(0)
    leaks: list[str] = []
    for name, calls in PUBLIC.items():
        for number, call in enumerate(calls):
            known = (await told(call, store, FIRST)).replace(f"/home/{WORD}", "")
            known = known.replace(f"subject='{WORD}'", "")  # it repeats the argument
            known = known.replace(f"alias-{WORD}", "alias")
            invented = (await told(call, store, NOBODY)).replace(NOBODY, FIRST)
            invented = invented.replace(NOBODY[:3], FIRST[:3])
            invented = invented.replace(f"alias-{WORD}", "alias")
            if WORD in known or ("NotFound" in invented and known != invented):
                leaks.append(f"{name} {number}: {known[:300]} | {invented[:300]}")
    assert not leaks, "\n".join(leaks)
    assert sum(map(len, PUBLIC.values())) >= 40
    assert await two.theirs.feed(0) == before
    await store.close()


# -- through every command


@pytest.mark.timeout(600)  # every command, one after the other, beside busy processes
@pytest.mark.parametrize("is_whole", with_larger(small=False, large=True), ids=["one way", "all"])
def test_command_shows_no_data_of_another_namespace(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_whole: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    address = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("PERDURE_STORE", address)
    (tmp_path / "recordingx.jsonl").write_text("{}\n", encoding="utf-8")

    async def fill() -> int:
        async with open_store(address, namespace="theirs") as store:
            await plant_marks(store.backend)
            head = await store.backend.feed(0)
        async with open_store(address, namespace="ours") as store:
            await store.create(id="own", title="ours")
        return len(head)

    async def count() -> int:
        async with open_store(address, namespace="theirs") as store:
            return len(await store.backend.feed(0))

    before = asyncio.run(fill())
    tried = 0
    leaks: list[str] = []
    ways: tuple[list[str], ...] = ([], ["--json"])
    for number, command in enumerate(ordered()):
        typed = MARK.replace("\0", "")  # typed text may be repeated
        words = [word.replace(typed, "") for word in line_of(command, tmp_path, number)]
        plain = '{"name": "asks", "sequence": [{"text": "hi"}]}'
        (tmp_path / "asks.yaml").write_text(plain, encoding="utf-8")
        for extra in ways if is_whole else (ways[number % 2],):
            capsys.readouterr()
            if main([*words, "--namespace", "ours", *extra]) == USAGE:
                continue  # no such option, or no namespace
            said = "".join(capsys.readouterr())
            tried += 1
            if "OWN" in said:
                leaks.append(f"{' '.join(words)}: {said[:300]}")
    assert not leaks, "\n".join(leaks)
    assert tried > (70 if is_whole else 50)
    assert asyncio.run(count()) == before
