"""Find, remember, correct and forget facts in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
from msgspec.structs import asdict

from perdure.bounds.limits import require_within
from perdure.client.clock import Outside
from perdure.client.erase import erase_fact, existing_or_created
from perdure.client.lookup.identifiers import find_entry
from perdure.client.session_fields import require_text
from perdure.errors import (
    EntryNotFound,
    FactNotFound,
    HeadConflict,
    IdempotencyMismatch,
    SessionExists,
    SessionNotFound,
    Unsupported,
    WrongArgument,
)
from perdure.memory.scope import MemoryFilter
from perdure.secrets.pasted_keys import apply_paste_policy
from perdure.session.codec import new_side, readable
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId, entry_place
from perdure.session.info import StreamHeader
from perdure.session.memory.facts import Fact, StoredFact, fact_of, stored_facts
from perdure.session.memory.kinds import (
    FACT_KINDS,
    FactCorrected,
    FactForgotten,
    FactRemembered,
    FactsReceived,
    memory_stream,
)
from perdure.stores.protocol import StreamState
from perdure.stores.session_store import SessionStore, append_to


class _KnownFact(msgspec.Struct, frozen=True):
    """A fact as stored, and the state that its stream had when the fact was read."""

    stored: StoredFact
    state: StreamState


def source_ids(source: Entry | str | Sequence[Entry | str] | None) -> tuple[EntryId, ...]:
    """Return the ids of the entries in `source`, without duplicates."""
    given = [] if source is None else [source] if isinstance(source, Entry | str) else source
    return tuple(dict.fromkeys(EntryId(e.id if isinstance(e, Entry) else e) for e in given))


async def remember(
    store: SessionStore,
    outside: Outside,
    new: FactRemembered,
    subject: str | None,
    *,
    key: str | None = None,
    expected_head: int | None = None,
) -> Fact:
    """Append the fact `new` to the memory stream of its subject.

    With `expected_head`, append only if the head of the stream is still `expected_head`.
    Raises: HeadConflict if the head differs from `expected_head`; the errors of `Memory.remember`.
    """
    body, stream = await _checked_fact(store, outside, new, subject)
    at = outside.clock.now_ms()
    (entry,) = await append_to(
        store, stream, new_side(body), at=at, expected_head=expected_head, key=key
    )
    await require_alive(store, outside, entry.id, body.sources)
    return await find_fact(store, entry.id)


async def remember_once(
    store: SessionStore,
    outside: Outside,
    new: FactRemembered,
    subject: str | None,
    key: str | None,
) -> Fact:
    """Store the fact `new`, unless the same fact is already stored for its subject.

    Raises: the errors of `Memory.remember`.
    """
    body, stream = await _checked_fact(store, outside, new, subject)
    async with _order_of(store, stream):
        while True:
            state = await store.state(stream)
            notes = await store.notes(stream, FACT_KINDS)
            known = _repeated_fact(notes, body)
            if key is not None and (used := await _fact_under(store, stream, notes, body, key)):
                return await find_fact(store, used)
            with suppress(HeadConflict):  # another process remembered a fact meanwhile
                if known is not None:
                    await _add_sources(store, outside, _KnownFact(known, state), new)
                    if key is not None:
                        again, at = _named_again(known.id), outside.clock.now_ms()
                        await append_to(store, stream, again, at=at, key=key)
                    return await find_fact(store, known.id)
                return await remember(
                    store, outside, new, subject, key=key, expected_head=state.head
                )


_Orders = WeakValueDictionary[StreamId, asyncio.Lock]
_ORDERS: WeakKeyDictionary[SessionStore, _Orders] = WeakKeyDictionary()


def _order_of(store: SessionStore, stream: StreamId) -> asyncio.Lock:
    """Return the lock that serializes this process's calls that remember facts in `stream`.

    Without the lock, each of many concurrent calls would read all facts again after every commit of
    another call.
    """
    orders = _ORDERS.setdefault(store, _Orders())
    return orders.setdefault(stream, asyncio.Lock())


_NO_HEAD = -2
"""No stream has this head, so a commit that expects it only looks up its idempotency key."""


async def _fact_under(
    store: SessionStore,
    stream: StreamId,
    notes: Sequence[Entry],
    body: FactRemembered,
    key: str,
) -> EntryId | None:
    """Return the fact that an earlier call with `key` returned; None if `key` was not used.

    The returned fact might have been forgotten since the earlier call. Raises: IdempotencyMismatch.
    """
    named = (each.about for each in notes if each.kind == FactsReceived.kind)
    again = [_named_again(fact) for fact in dict.fromkeys(named) if fact is not None]
    for entry in (new_side(body), *again):
        with suppress(IdempotencyMismatch):
            try:
                (first,) = await append_to(
                    store, stream, entry, at=0, expected_head=_NO_HEAD, key=key
                )
            except HeadConflict:
                return None
            known = _facts_of(notes).get(first.about) if first.about is not None else None
            if known is None or any(_is_same(each.body, body) for each in known.versions):
                return first.about or first.id
    raise IdempotencyMismatch(key)


def _named_again(fact: EntryId) -> NewEntry:
    """Return the entry of a call that found `fact` already stored.

    The idempotency key of the call is stored with the returned entry.
    """
    return new_side(FactsReceived(0), fact)


def _repeated_fact(notes: Sequence[Entry], body: FactRemembered) -> StoredFact | None:
    """Return the fact in the `notes` of its stream that has the same content as `body`."""
    text = msgspec.json.encode(body.text)
    if not any(text in note.body for note in notes):  # much faster than decoding all
        return None
    return next((each for each in _facts_of(notes).values() if _is_repeated(each, body)), None)


def _is_repeated(known: StoredFact, body: FactRemembered) -> bool:
    """Return whether `body` has the same content as the newest version of `known`.

    The result is False if `known` has sources and `body` has none, because an erasure of the
    sources of `known` must not erase a fact that was remembered without sources.
    """
    newest = known.versions[-1]
    return (bool(body.sources) or not newest.sources) and _is_same(newest.body, body)


def _is_same(one: FactRemembered | FactCorrected, other: FactRemembered) -> bool:
    """Return whether two bodies are equal except for their sources."""
    return {**asdict(one), "sources": ()} == {**asdict(other), "sources": ()}


async def _add_sources(
    store: SessionStore, outside: Outside, known: _KnownFact, new: FactRemembered
) -> None:
    """Append a version of `known` with the sources of `new` added, if there are new sources.

    Raises: HeadConflict.
    """
    newest = known.stored.versions[-1]
    added = tuple(each for each in new.sources if each not in newest.sources)
    if newest.is_received or (added and newest.sources):
        sources = newest.sources and (*newest.sources, *added)
        await _commit_correction(store, outside, known, new, given=sources, key=None)


async def fact_entry(store: SessionStore, new: FactRemembered) -> NewEntry:
    """Return the entry that stores `new`. Raises: the errors of `Memory.remember`."""
    return new_side((await _with_sources(store, new))[0])


async def correct(
    store: SessionStore, outside: Outside, fact: EntryId, new: FactRemembered, key: str | None
) -> Fact:
    """Append a newer version of `fact`. Raises: the errors of `Memory.correct`."""
    _check(new)
    given = [source.entry.id for source in await _require_sources(store, new.sources)]
    while True:
        known = await _known_fact(store, fact)
        with suppress(HeadConflict):  # a forgotten fact is not corrected
            await _commit_correction(store, outside, known, new, given=tuple(given), key=key)
            await require_alive(store, outside, fact, tuple(given))
            return await find_fact(store, fact)


async def _commit_correction(
    store: SessionStore,
    outside: Outside,
    known: _KnownFact,
    new: FactRemembered,
    *,
    given: tuple[EntryId, ...],
    key: str | None,
) -> None:
    """Commit `new` as the newest version of `known`. Raises: HeadConflict; IdempotencyMismatch.

    A version without sources gets the sources of the newest version. A repeated call with the same
    `key` must commit the same body as the first call. Because the newest version can have other
    sources than at the first call, the sources of earlier versions are tried, too.
    """
    stream, head, versions = known.state.header.id, known.state.head, known.stored.versions
    newest, mismatch = versions[-1], None
    described: dict[str, Any] = {**asdict(new), "agent": newest.body.agent}
    earlier = (each.body.sources for each in reversed(versions))
    for sources in (given,) if given else dict.fromkeys((newest.sources, *earlier)):
        described["sources"] = sources
        body, at = FactCorrected(**described), outside.clock.now_ms()
        new_version = new_side(body, known.stored.id)
        try:
            await append_to(store, stream, new_version, at=at, expected_head=head, key=key)
        except IdempotencyMismatch as error:
            mismatch = mismatch or error
        else:
            return
    assert mismatch is not None  # one commit at least was tried
    raise mismatch


async def forget(store: SessionStore, outside: Outside, fact: EntryId, by: str | None) -> None:
    """End the validity of `fact`, and erase all its versions. Raises: FactNotFound; Unsupported."""
    while True:
        known = await _known_fact(store, fact)
        forgotten = new_side(FactForgotten(), fact)
        with suppress(HeadConflict):
            await erase_fact(store, outside, known.state, known.stored.entries, (forgotten,), by=by)
            return


async def find_fact(store: SessionStore, fact: EntryId) -> Fact:
    """Return the fact with the id `fact`. Raises: FactNotFound."""
    known = await _known_fact(store, fact)
    return fact_of(known.stored, known.state.header.subject)


async def facts_in(store: SessionStore, scope: MemoryFilter) -> list[Fact]:
    """Return the facts in `scope`, in no particular order."""
    by_stream: dict[StreamId, list[Entry]] = {}
    if scope.name == "subject":
        stream = memory_stream(scope.subject)
        with suppress(SessionNotFound):
            by_stream[stream] = await store.notes(stream, FACT_KINDS)
    else:
        for entry in await store.notes_of_all(FACT_KINDS):
            by_stream.setdefault(entry.stream, []).append(entry)
    found: list[Fact] = []
    for stream, entries in by_stream.items():
        with suppress(SessionNotFound):
            header = (await store.state(stream)).header
            if header.kind == "memory":
                facts = _facts_of(entries).values()
                found += [fact_of(stored, header.subject) for stored in facts]
    return [fact for fact in found if scope.covers(fact)]


async def own_notes(store: SessionStore, session: str, kinds: Sequence[str]) -> list[Entry]:
    """Return the side entries of `kinds` in the session's own log, not in the log of its origin.

    Raises: SessionNotFound.
    """
    notes = await store.notes(StreamId(session), kinds)
    return [note for note in notes if note.stream == session]


# ------------------------------------------------------------------------------------- inside


class _Source(msgspec.Struct, frozen=True):
    entry: Entry
    subject: str | None


def _check(new: FactRemembered) -> None:
    require_text("text", new.text)
    if not new.text.strip():
        raise WrongArgument("the text of a fact is empty: say what to remember", argument="text")
    size = len(new.text.encode())
    require_within("message_bytes", size, f"a fact of {size:,} bytes")
    apply_paste_policy(new.text, "refuse", "the fact")
    if new.valid_from is not None and new.valid_to is not None and new.valid_to <= new.valid_from:
        raise WrongArgument("valid_to is not after valid_from", argument="valid_to")


async def _with_sources(
    store: SessionStore, new: FactRemembered
) -> tuple[FactRemembered, tuple[_Source, ...]]:
    """Check `new` and its sources; return `new` with complete ids of sources, and the sources."""
    require_text("agent", new.agent)
    _check(new)
    sources = await _require_sources(store, new.sources)
    ids = tuple(source.entry.id for source in sources)
    return msgspec.structs.replace(new, sources=ids), sources


async def _checked_fact(
    store: SessionStore, outside: Outside, new: FactRemembered, subject: str | None
) -> tuple[FactRemembered, StreamId]:
    """Return the body that stores `new`, and the memory stream of `subject`.

    If `subject` is None, the subject of the sources is used.
    """
    body, sources = await _with_sources(store, new)
    subject = subject if subject is not None else _subject_of(sources)
    return body, await require_stream(store, outside, subject)


async def _require_sources(store: SessionStore, sources: Iterable[EntryId]) -> tuple[_Source, ...]:
    """Return the entries whose ids are `sources`, after checking that the entries exist.

    Raises: EntryNotFound if an entry does not exist or was erased.
    """
    found: list[_Source] = []
    for source in sources:
        entry = await find_entry(store, source)
        header = (await store.state(entry.stream)).header
        if entry.is_erased or header.kind == "memory":
            raise EntryNotFound(source, None)
        found.append(_Source(entry, header.subject))
    return tuple(found)


async def require_alive(
    store: SessionStore, outside: Outside, fact: EntryId, sources: tuple[EntryId, ...]
) -> None:
    """Forget `fact`, and raise an error, if a source was erased while `fact` was being stored.

    A later erasure of a source needs no check, because the erasure finds the stored fact. Raises:
    EntryNotFound.
    """
    try:
        await _require_sources(store, sources)
    except (EntryNotFound, SessionNotFound):
        with suppress(FactNotFound):
            await forget(store, outside, fact, None)
        raise


def _subject_of(sources: Iterable[_Source]) -> str | None:
    """Return the subject that all `sources` have.

    Raises: WrongArgument if `sources` have different subjects.
    """
    subjects = {source.subject for source in sources}
    if len(subjects) > 1:
        raise WrongArgument(
            "the sources are sessions of several subjects: say which one the fact is about",
            argument="subject",
        )
    return subjects.pop() if subjects else None


async def require_stream(store: SessionStore, outside: Outside, subject: str | None) -> StreamId:
    """Return the memory stream of `subject`; create it if there is none.

    Raises: Unsupported if the store cannot erase a single fact.
    """
    if not store.capabilities.erase:
        raise Unsupported("facts", store.address.partition(":")[0])
    stream, at = memory_stream(subject), outside.clock.now_ms()
    header = StreamHeader(id=stream, created_at=at, kind="memory", subject=subject)
    there = await existing_or_created(store, header)
    if (there.kind, there.subject) != ("memory", subject):
        raise SessionExists(stream)
    return stream


def _facts_of(entries: Iterable[Entry]) -> dict[EntryId, StoredFact]:
    return stored_facts((entry, readable(entry)) for entry in entries)


async def _known_fact(store: SessionStore, fact: EntryId) -> _KnownFact:
    """Return the fact, and the state that its stream had before the fact was read."""
    with suppress(ValueError, SessionNotFound):
        stream, _ = entry_place(fact)
        state = await store.state(stream)
        found = _facts_of(await store.notes(stream, FACT_KINDS)).get(fact)
        if found is not None and state.header.kind == "memory":
            return _KnownFact(found, state)
    raise FactNotFound(fact)
