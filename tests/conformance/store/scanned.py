"""A store that random steps change, and the scan of all streams that its lists must equal."""

from __future__ import annotations

from hypothesis import strategies as st

from perdure.session.codec import new_side
from perdure.session.entries import Entry, NewEntry, Sibling
from perdure.session.ids import StreamId
from perdure.session.info import ORIGINS, Origin, SessionInfo, SessionScope, is_found
from perdure.session.memory.open_entries import OPEN_KINDS, unclosed
from perdure.session.notes import (
    Answer,
    Question,
    QuestionWithdrawn,
    SessionEnded,
    SessionInfoChanged,
    SessionReopened,
)
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.retention.policy import Retention, expiring
from perdure.stores.retention.quotas import Usage
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Backend
from tests.conformance.store.building import (
    TTL_MS,
    append,
    create,
    fork,
    header,
    replied,
    said,
    turn_finished,
    turn_started,
)
from tests.fakes.clock import START_MS

FOLDERS = ("/a", "/b", "/ä \U0001f600", None)
ASKED = Question("approval", "May I?", ("allow", "deny"))
ACTS = ("say", "say", "ask", "ask", "close", "withdraw", "move", "name", "end", "reopen", "turn")
STEPS = st.lists(
    st.tuples(
        st.sampled_from((*ACTS, "create", "flow", "fork", "erase", "remove")), st.integers(0, 99)
    ),
    max_size=14,
)


class Namespace:
    """A store that random steps change; `check` compares its lists with a scan of all streams."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.at = START_MS
        self.made = 0
        self.there: list[StreamId] = []

    async def step(self, act: str, number: int) -> None:
        """Apply `act` to one of the streams."""
        self.at += 10
        if act in ("create", "flow") or not self.there:
            await self._create(act, number)
            return
        stream = self.there[number % len(self.there)]
        is_erased = (await self.store.state(stream)).info.status == "erased"
        if is_erased and act != "remove":
            return
        if act == "fork":
            self.made += 1
            await fork(self.store, stream, f"s{self.made}")
            self.there.append(StreamId(f"s{self.made}"))
        elif act == "erase":
            await self._erase(stream)
        elif act == "turn":
            lease = await self.store.acquire_lease(stream, "me", TTL_MS)
            await append(self.store, stream, turn_started(), turn_finished(Sibling(0)), lease=lease)
            await self.store.release_lease(lease)
        elif act == "remove":
            if await self.store.retention.remove(stream):
                self.there.remove(stream)
        else:
            for entry in await self._entries(act, number, stream):
                await append(self.store, stream, entry, at=self.at)

    async def _create(self, act: str, number: int) -> None:
        self.made += 1
        origins: tuple[Origin, ...] = ORIGINS["all"]
        new = header(
            f"s{self.made}",
            created_at=self.at,
            kind="flow" if act == "flow" else "session",
            origin=origins[number % len(origins)],
            cwd=FOLDERS[number % len(FOLDERS)],
            title=f"Straße {number}" if number % 3 else None,
        )
        self.there.append(await create(self.store, new, said(f"begin {number}", at=self.at)))

    async def _entries(self, act: str, number: int, stream: StreamId) -> list[NewEntry]:
        folder, asked = FOLDERS[number % len(FOLDERS)], await self.open_questions(stream)
        if act in ("close", "withdraw"):
            if not asked:
                return []
            about = asked[number % len(asked)].id
            closing = Answer("allow", "me") if act == "close" else QuestionWithdrawn("aborted")
            return [new_side(closing, about)]
        return {
            "say": [said("more", at=self.at) if number % 2 else replied(at=self.at)],
            "ask": [new_side(ASKED)],
            "move": [new_side(SessionInfoChanged(cwd=folder or "/c"))],
            "name": [new_side(SessionInfoChanged(title=f"named {number}"))],
            "end": [new_side(SessionEnded("user"))],
            "reopen": [new_side(SessionReopened())],
        }[act]

    async def _erase(self, stream: StreamId) -> None:
        request = EraseRequest(
            id=f"e{self.at}", scope="session", by="me", at=self.at, name=stream, forks="erase"
        )
        done = await self.store.retention.erase(request)
        if not self.store.capabilities.erase:
            gone = {each.session for each in done.sessions}
            self.there = [each for each in self.there if each not in gone]

    # -- the scan

    async def infos(self) -> list[SessionInfo]:
        """Every session, newest activity first."""
        states = [await self.store.state(stream) for stream in self.there]
        found = [state.info for state in states if state.header.kind == "session"]
        return sorted(found, key=lambda info: (info.updated_at, info.id), reverse=True)

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        """Return the open questions of the stream's own log."""
        notes = await self.store.notes(stream, OPEN_KINDS)
        return unclosed((note for note in notes if note.stream == stream), Question.kind)

    async def check(self) -> None:
        """Compare every list with the scan."""
        infos = await self.infos()
        scopes: tuple[SessionScope, ...] = ("listed", "all")
        for scope in scopes:
            near = [info for info in infos if info.origin in ORIGINS[scope]]
            for folder in (*FOLDERS, "/nowhere"):
                for query in (None, "STRASSE", "zzz"):
                    found = await self.store.sessions(
                        limit=None, scope=scope, cwd=folder, query=query
                    )
                    assert found == [info for info in near if is_found(info, folder, query)]
        for upto in (START_MS, self.at - 30, self.at):
            run = [i for i in infos if i.turns and i.origin != "import"]
            idle = [i.id for i in run if i.status == "active" and i.updated_at <= upto]
            assert await self.store.idle_sessions(upto) == idle
        asked = [each for stream in self.there for each in await self.open_questions(stream)]
        found_open = await self.store.open_of_all("question")
        assert sorted(found_open, key=lambda each: each.id) == sorted(asked, key=lambda e: e.id)
        for stream in self.there:
            assert await self.store.open_questions(stream) == await self.open_questions(stream)
        await self._check_retention()
        await self.check_counts()

    async def _check_retention(self) -> None:
        retaining = self.store
        holdings = await retaining.retention.holdings()
        for seconds in (0, 10_000):
            for policy in (
                Retention(max_age_s=seconds),
                Retention(max_idle_s=seconds),
                Retention(max_sessions=seconds),
                Retention(max_bytes=seconds),
            ):
                plan = expiring(holdings, policy, START_MS)
                if plan.expiring or plan.held:
                    assert await retaining.retention.is_due(policy)

    async def check_counts(self) -> None:
        info, (_, used) = (
            await self.store.info(),
            await self.store.retention.quota(),
        )
        logs = [await self.store.entries(stream) for stream in self.there]
        states = [await self.store.state(stream) for stream in self.there]
        size = sum(len(entry.body) for log in logs for entry in log)
        alive = sum(state.info.status != "erased" for state in states)
        kept = sum(not entry.is_erased for log in logs for entry in log)
        assert (info.streams, info.entries) == (len(logs), sum(map(len, logs)))
        assert (used.sessions, used.entries) == (alive, kept)
        if self.store.capabilities.pointer_fork:  # else bodies are counted as lines of files
            assert used == Usage(alive, kept, size)
        assert (await self.store.maintenance.verify()).problems == ()


async def carried_out(backend: Backend, steps: list[tuple[str, int]]) -> None:
    """Run all steps; compare the lists with the scan through a first and a second handle."""
    data = backend.new()
    try:
        namespace = Namespace(await data.open())
        for act, number in steps:
            await namespace.step(act, number)
        await namespace.check()
        first, namespace.store = namespace.store, await data.open()
        await namespace.check()
        await first.close()
    finally:
        await data.close()
