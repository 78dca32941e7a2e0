"""Compute usage, costs and activity from the tallies of sessions, which come from their logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from operator import add
from typing import NamedTuple

import msgspec

from perdure.client.records.copies import copied_entries, has_parent
from perdure.client.records.sessions import chosen_sessions, own_entries
from perdure.models.price_list import PriceList
from perdure.models.prices import Cost, CostCalculator, Price, unpriced
from perdure.session.clock import ms_of
from perdure.session.codec import Unknown, readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo
from perdure.session.ledger import ModelCalled, ModelFinished, TurnStarted
from perdure.session.memory.kinds import FactsCaptured
from perdure.session.messages import Message, Usage
from perdure.session.notes import is_copy
from perdure.session.records import ActivityGroup, ActivityTotal, UsageGroup, UsageTotal
from perdure.stores.session_store import SessionStore

_QUARTER_MS = 900_000
"""A quarter of an hour: in every time zone, days and hours begin at such a quarter."""

_MOST_KEPT = 10_000
"""Maximum number of sessions whose tallies a store handle caches."""


class _Cell(NamedTuple):
    """The key under which usage is summed: one agent, one model, one quarter of an hour.

    Units: `quarter` counts quarters of an hour since the Unix epoch.
    """

    quarter: int
    model: str
    agent: str


class _Used(NamedTuple):
    calls: int = 0
    usage: Usage = Usage()
    unpriced: int = 0

    def plus(self, other: _Used) -> _Used:
        usage = self.usage + other.usage
        return _Used(self.calls + other.calls, usage, self.unpriced + other.unpriced)


class _Count(NamedTuple):
    messages: int = 0
    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0

    def plus(self, other: _Count) -> _Count:
        return _Count(*map(add, self, other))


class SessionTally:
    """The usage and activity of one session, from the entries of its own log up to seq `head`.

    The first `copied` entries are copies from the fork's origin and are not counted.
    """

    def __init__(self, cost: Cost, copied: int) -> None:
        self._cost = cost
        self.copied = copied
        self.head = copied - 1
        self.used: dict[_Cell, _Used] = {}
        self.counts: dict[int, _Count] = {}
        self.called: dict[EntryId, ModelCalled] = {}
        self.answers: set[EntryId] = set()

    def add(self, entries: Iterable[Entry]) -> None:
        """Add `entries`; they must follow the entries added before."""
        for entry in entries:
            self.head = entry.seq
            if entry.kind not in _KINDS or is_copy(entry.body):
                continue
            body = readable(entry)
            if isinstance(body, Message):
                self._add_message(entry, body)
            elif isinstance(body, ModelCalled):
                self.called[entry.id] = body
            elif isinstance(body, ModelFinished):
                self._finish(entry, body)
            elif isinstance(body, FactsCaptured):
                if body.usage is not None:
                    self._use(entry, body.model or "", "", body.usage)
            elif not isinstance(body, Unknown):
                self._count(entry, _Count(turns=1))

    def _add_message(self, entry: Entry, message: Message) -> None:
        if message.role in ("user", "assistant"):
            self._count(entry, _Count(messages=1, tool_calls=len(message.tool_calls)))
        is_counted = entry.id in self.answers  # in the model_finished of the same commit
        self.answers.discard(entry.id)
        if message.usage is not None and not is_counted:
            self._use(entry, message.model or "", "", message.usage)

    def _finish(self, entry: Entry, body: ModelFinished) -> None:
        called = None if entry.about is None else self.called.pop(entry.about, None)
        if body.answer is not None:
            self.answers.add(body.answer)
        if body.usage is not None:
            model = body.model or (called.model if called else "")
            agent = body.agent or (called.agent if called else None) or ""
            self._use(entry, model, agent, body.usage)

    def _use(self, entry: Entry, model: str, agent: str, usage: Usage) -> None:
        if usage.cost_microcents is None:
            usage = msgspec.structs.replace(usage, cost_microcents=self._cost(model, usage))
        cell = _Cell(entry.at // _QUARTER_MS, model, agent)
        is_unpriced = usage.cost_microcents is None and usage.total_tokens > 0
        more = _Used(1, usage, int(is_unpriced))
        self.used[cell] = self.used.get(cell, _Used()).plus(more)
        self._count(entry, _Count(tokens=usage.total_tokens))

    def _count(self, entry: Entry, more: _Count) -> None:
        quarter = entry.at // _QUARTER_MS
        self.counts[quarter] = self.counts.get(quarter, _Count()).plus(more)


_KINDS = frozenset(
    ("message", ModelCalled.kind, ModelFinished.kind, TurnStarted.kind, FactsCaptured.kind)
)


class Tallies:
    """Computes and caches the tallies of a store's sessions.

    Each call reads only entries that were appended since the previous call.

    With `prices`, a call whose cost is not in the log gets a computed cost; the price comes from
    `prices`, or else from the public price list.
    """

    def __init__(self, store: SessionStore, prices: Mapping[str, Price] | None = None) -> None:
        self._store = store
        self._cost = unpriced if prices is None else CostCalculator(prices, PriceList())
        self._kept: dict[tuple[StreamId, int], SessionTally] = {}

    async def usage(
        self,
        by: UsageGroup,
        since: datetime | None,
        until: datetime | None,
        zone: tzinfo,
        *,
        daily: bool = False,
        session: StreamId | None = None,
        cwd: str | None = None,
    ) -> list[UsageTotal]:
        """Sum up model usage; sort days by time, and other groups by tokens, highest first."""
        begin, end = _ms_or_none(since), _ms_or_none(until)
        groups: dict[tuple[str, str | None], tuple[_Used, set[StreamId]]] = {}
        async for info in chosen_sessions(self._store, session, cwd, begin):
            tally = await self._tally(info)
            for cell, used in tally.used.items():
                if not _is_within(cell.quarter, begin, end):
                    continue
                day = _time_key("day", cell.quarter, zone) if daily else None
                key = (_group(by, cell, info, zone), day)
                sums, sessions = groups.get(key, (_Used(), set[StreamId]()))
                sessions.add(info.id)
                groups[key] = sums.plus(used), sessions
        totals = [
            UsageTotal(key, used.calls, used.usage, used.unpriced, len(sessions), day)
            for (key, day), (used, sessions) in groups.items()
        ]
        if by == "day":
            return sorted(totals, key=lambda each: each.key)
        return sorted(totals, key=lambda each: (each.day or "", -each.usage.total_tokens, each.key))

    async def activity(
        self,
        by: ActivityGroup,
        since: datetime | None,
        until: datetime | None,
        zone: tzinfo,
        *,
        cwd: str | None = None,
    ) -> list[ActivityTotal]:
        """Count the events of each day or hour, in order of time; omit times without events."""
        begin, end = _ms_or_none(since), _ms_or_none(until)
        groups: dict[str, tuple[_Count, set[StreamId]]] = {}
        async for info in chosen_sessions(self._store, None, cwd, begin):
            tally = await self._tally(info)
            for quarter, count in tally.counts.items():
                if not _is_within(quarter, begin, end):
                    continue
                key = _time_key(by, quarter, zone)
                sums, sessions = groups.get(key, (_Count(), set[StreamId]()))
                sessions.add(info.id)
                groups[key] = sums.plus(count), sessions
        totals = [
            ActivityTotal(key, *count, sessions=len(sessions))
            for key, (count, sessions) in groups.items()
        ]
        return sorted(totals, key=lambda each: each.key)

    async def _tally(self, info: SessionInfo) -> SessionTally:
        name = (info.id, info.created_at)  # a reused id of an erased session starts a new tally
        known = self._kept.pop(name, None)  # kept again only if everything could be read
        if known is not None and known.copied and not await has_parent(self._store, info):
            known = None  # its copies count now
        if known is None or known.head < info.entries - 1:
            known = known or SessionTally(self._cost, await copied_entries(self._store, info))
            async for page in own_entries(self._store, info.id, known.head):
                known.add(page)
        self._kept[name] = known
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return known


def _ms_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else ms_of(moment)


def _is_within(quarter: int, since: int | None, until: int | None) -> bool:
    after = since is None or (quarter + 1) * _QUARTER_MS > since
    return after and (until is None or quarter * _QUARTER_MS < until)


def _group(by: UsageGroup, cell: _Cell, info: SessionInfo, zone: tzinfo) -> str:
    match by:
        case "model":
            return cell.model
        case "agent":
            return cell.agent
        case "source":
            return info.source or ""
        case "project":
            return info.cwd or ""
        case "subject":
            return info.subject or ""
        case "session":
            return info.id
        case "day":
            return _time_key("day", cell.quarter, zone)


def _time_key(by: ActivityGroup, quarter: int, zone: tzinfo) -> str:
    try:
        moment = datetime.fromtimestamp(quarter * _QUARTER_MS / 1000, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):  # an import may claim any time
        return ""
    return moment.strftime("%Y-%m-%d" if by == "day" else "%Y-%m-%dT%H")
