"""Goals under any faults: no acknowledged entry is lost, and no effect happens too often."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure import Store
from perdure.client.cluster.recovery import GIVEN_UP
from perdure.engine.turns.requests import closing_entry
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.ledger import ToolStarted, TurnFinished, TurnRefused
from tests.fakes.provider_rules import all_problems
from tests.fakes.workers import effects
from tests.faults.load import Sent, request_of

PATIENCE_S = 120.0
STORY = 40
_GIVEN_UP = ("workers_died", GIVEN_UP[0])


class Findings(msgspec.Struct):
    """The results of a check: counts, and a sentence for each violated goal."""

    acknowledged: int = 0
    turns: int = 0
    effects: int = 0
    given_up: int = 0
    lost: list[str] = []
    beyond_policy: list[str] = []
    invalid_contexts: list[str] = []
    broken: list[str] = []

    @property
    def is_sound(self) -> bool:
        """Return whether no goal is violated."""
        return not (self.lost or self.beyond_policy or self.invalid_contexts or self.broken)


async def findings(store: Store, sent: list[Sent], folder: Path) -> Findings:
    """Wait until every acknowledged turn has ended; check logs and effects."""
    found = Findings()
    await _settled(store, sent)
    for each in sent:
        await _look_at(store, each, found)
    sessions = {each.session for each in sent}
    await _effects(store, sessions, folder, found)
    for session in sessions:
        context = await (await store.open(session)).context()
        problems = all_problems([item.message for item in context.messages])
        found.invalid_contexts += [f"{session}: {problem}" for problem in problems]
    verified = await store.verify()
    found.broken += [str(problem) for problem in verified.problems]
    return found


async def _settled(store: Store, sent: list[Sent]) -> None:
    """Wait until no session has an open turn or request, at most `PATIENCE_S`."""
    until = time.monotonic() + PATIENCE_S
    left = {each.session: each for each in sent}
    while left and time.monotonic() < until:
        for session, each in list(left.items()):
            request = await request_of(store, each)
            is_open = request is not None and not await closing_entry(
                store.backend, session, request
            )
            if not is_open and (await store.backend.state(session)).open_turn is None:
                del left[session]
        await asyncio.sleep(0.1)


async def _look_at(store: Store, sent: Sent, found: Findings) -> None:
    request = await request_of(store, sent)
    name = f"{sent.session} {sent.text}"
    found.acknowledged += sent.request is not None
    if request is None:
        if sent.request is not None or sent.has_reply:
            found.lost.append(f"{name}: its request is not in the log")
        return
    closing = await closing_entry(store.backend, sent.session, request)
    if closing is None:
        found.lost.append(f"{name}: no turn answered its request")
        return
    if isinstance(refused := body_of(closing), TurnRefused):
        if refused.code in _GIVEN_UP and not sent.has_reply:
            found.given_up += 1
        else:
            found.lost.append(f"{name}: refused, {refused.code}: {refused.error}")
        return
    for entry in await store.backend.entries(
        sent.session, after=closing.seq, kind=TurnFinished.kind
    ):
        if entry.about == closing.id:
            body = body_of(entry)
            assert isinstance(body, TurnFinished)
            found.turns += 1
            if body.end != "stop":
                found.given_up += 1
                if sent.has_reply or "workers died" not in (body.error or ""):
                    found.lost.append(f"{name}: ended as {body.end}, {body.error}")
            return
    found.lost.append(f"{name}: its turn has no end")


async def _effects(store: Store, sessions: set[StreamId], folder: Path, found: Findings) -> None:
    """Compare how often each tool ran with how often the log allows it."""
    started: dict[str, Counter[str]] = defaultdict(Counter)
    for session in sessions:
        for entry in await store.backend.entries(session, kind=ToolStarted.kind):
            body = body_of(entry)
            assert isinstance(body, ToolStarted)
            started[str(body.input["text"])][body.tool] += 1
    by_process: dict[str, list[int]] = defaultdict(list)
    for pid, text in effects(folder):
        by_process[text].append(pid)
    done = {text: len(pids) for text, pids in by_process.items()}
    found.effects = sum(done.values())
    for text, times in done.items():
        allowed = 1 if "once" in started[text] else started[text]["wait"]
        if times > allowed:
            found.beyond_policy.append(
                f"{text}: {times} effects by {by_process[text]}, {allowed} allowed: "
                f"{await _story(store, sessions, text)}"
            )


async def _story(store: Store, sessions: set[StreamId], text: str) -> str:
    """Return the log entries of the turn that called a tool with `text`."""
    for session in sessions:
        entries = await store.backend.entries(session)
        of_it = [each.seq for each in entries if f'"{text}"'.encode() in bytes(each.body)]
        if of_it:
            after = [each for each in entries if each.seq >= of_it[0]]
            return "\n    ".join([session, *map(_line, after[:STORY])])
    return "not in the log"


def _line(entry: Entry) -> str:
    at = datetime.fromtimestamp(entry.at / 1000, UTC).time().isoformat("milliseconds")
    body = bytes(entry.body).decode(errors="replace")
    return f"{entry.seq} {at} {entry.kind} about {entry.about}: {body[:160]}"
