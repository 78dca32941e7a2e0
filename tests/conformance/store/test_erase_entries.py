"""Erasing single entries removes their bodies and all copies of them, but not their positions."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import (
    BranchSummary,
    Compaction,
    ModelChange,
    Note,
    Session,
    assistant,
    media,
    tool_call,
    tool_result,
    user,
)
from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.errors import (
    EntryNotFound,
    Erased,
    HeadConflict,
    InvalidEntry,
    SessionHasForks,
    SessionNotFound,
    TurnOpen,
    Unsupported,
    WrongArgument,
)
from perdure.session.codec import new_side, new_tree
from perdure.session.ledger import ToolFinished, ToolStarted, TurnFinished, TurnStarted
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom

CANARY = "tulipwood"
erases = pytest.mark.needs("erase")


@pytest.fixture
def opened(store: SessionStore, clock: ManualClock) -> Store:
    return Store(store, Outside(clock, SeededRandom(1)))


async def stored_text(session: Session) -> str:
    """Return everything that the log of `session` stores, as text."""
    return "".join([entry.body.decode() async for entry in session.entries()])


async def said(session: Session) -> list[str]:
    """Return the texts of the entries that a model would receive; check that all are readable."""
    context = await session.context()
    assert context.skipped == 0
    return [each.message.text for each in context.messages if each.entry_id is not None]


async def require_sound(store: Store, erased: int) -> None:
    found = await store.verify()
    assert (found.problems, found.erased) == ((), erased)


@erases
async def test_erased_entry_is_removed_from_log_context_search_and_lists(opened: Store) -> None:
    session = await opened.create(id="s")
    picture = media(b"\x89PNG" + CANARY.encode(), "image/png")
    secret = await session.append(user(f"my word is {CANARY}", picture))
    await session.append(assistant("noted"), user("thanks"))
    await session.label(secret, f"label {CANARY}")
    certificate = await session.erase_entries([secret], by="ana")

    assert CANARY not in await stored_text(session)
    assert await opened.search(CANARY) == []
    assert await said(session) == ["noted", "thanks"]
    assert [message.text for message in await session.messages()] == ["noted", "thanks"]
    assert await session.labels() == {}
    assert [entry.is_erased for entry in await session.path()] == [True, False, False]
    assert (await session.info()).first_text == "thanks"
    (listed,) = await opened.recent()
    assert (listed.first_text, listed.messages) == ("thanks", 3)
    (of_session,) = certificate.sessions
    assert (of_session.is_whole, of_session.erased, of_session.entries) == (
        False,
        ((0, 0), (3, 3)),
        2,
    )
    assert (certificate.scope, certificate.by) == ("entries", "ana")
    assert (certificate.is_complete, certificate.removed.contents) == (True, 1)
    assert [each.id for each in await opened.erasures()] == [certificate.id]
    await require_sound(opened, 2)

    await session.append(assistant("on we go"))
    assert await said(session) == ["noted", "thanks", "on we go"]
    assert (await session.erase_entries([secret])).id == certificate.id
    await require_sound(opened, 2)


@erases
async def test_erasure_certificate_counts_each_requested_entry_once(opened: Store) -> None:
    session = await opened.create(id="s")
    first = await session.append(user("first"))
    second = await session.append(assistant("second"))
    await session.label(first, "label")
    certificate = await session.erase_entries([first])
    assert (certificate.requested, certificate.entries) == (1, 2)  # with the label
    certificate = await session.erase_entries([await session.entry(first.id), second])
    assert (certificate.requested, certificate.entries) == (1, 1)
    assert [each.requested for each in await opened.erasures()] == [1, 1]
    fork = await session.fork(await session.append(user("third")))
    shared = (await session.path())[-1]
    certificate = await session.erase_entries([shared], forks="erase")
    assert (certificate.requested, certificate.entries) == (1, 1)
    assert (await opened.erase(fork.id)).requested == 0


@erases
async def test_erasing_the_last_message_updates_the_session_time(
    opened: Store, clock: ManualClock
) -> None:
    session = await opened.create(id="s")
    await session.append(user("first"))
    before = (await session.info()).updated_at
    clock.advance(3600)
    last = await session.append(user(CANARY))
    await session.erase_entries([last])
    assert (await session.info()).updated_at == before
    await require_sound(opened, 1)
    await session.erase_entries([await session.entry("s/0")])
    info = await session.info()
    assert (info.first_text, info.updated_at) == (None, info.created_at)
    await require_sound(opened, 2)


@erases
async def test_context_is_valid_after_erasing_a_tool_call(
    opened: Store,
) -> None:
    session = await opened.create(id="s")
    backend = opened.backend
    await session.append(user("look"))
    lease = await backend.acquire_lease(session.id, "me", 60_000)
    start = ToolStarted("c1", "read_file", {"path": CANARY}, 1, "read", "retry", "key")
    other = ToolStarted("c2", "read_file", {"path": "kept"}, 1, "read", "retry", "key")
    call = assistant(tool_call("c1", "read_file", {"path": CANARY}))
    entries = [new_side(TurnStarted(1, "a")), new_tree(call), new_side(start)]
    await _commit(opened, session, entries, lease)
    done = ToolFinished("c1", "read_file", "ok", True, summary=CANARY)
    result = tool_result("c1", f"it holds {CANARY}")
    await _commit(opened, session, [new_side(done), new_tree(result), new_side(other)], lease)
    with pytest.raises(TurnOpen):
        await session.erase_entries(["s/2"])
    await _commit(opened, session, [new_side(TurnFinished("stop"))], lease)
    await backend.release_lease(lease)

    await session.erase_entries(["s/2"])
    (text,) = await said(session)  # a result without its call becomes text
    assert text.startswith("look\n\nResult of a tool call that is no longer part")
    rest = await stored_text(session)
    assert rest.count(CANARY) == 1
    assert "kept" in rest
    await session.erase_entries(["s/5"])
    assert CANARY not in await stored_text(session)
    assert [record.input for record in await opened.tool_calls(session="s")] == [{"path": "kept"}]
    await require_sound(opened, 4)


async def _commit(store: Store, session: Session, entries: list[Any], lease: Any) -> None:
    write = Write(stream=session.id, entries=tuple(entries), lease=lease)
    await store.backend.commit(Commit(writes=(write,), at=1))


@erases
async def test_erasure_of_an_entry_erases_its_summaries(opened: Store) -> None:
    session = await opened.create(id="s")
    first, second = await session.append(user(CANARY), assistant("two"))
    await session.append(Compaction(f"summary of {CANARY}", second.id, 10))
    await session.append(user("three"))
    assert CANARY in "".join(await said(session))
    await session.erase_entries([first])
    assert await said(session) == ["two", "three"]
    assert CANARY not in await stored_text(session)
    await session.branch(second)
    left = await session.append(assistant(f"left {CANARY}"))
    await session.branch_with_summary(second, BranchSummary(f"about {CANARY}"))
    await session.erase_entries([left])
    assert CANARY not in await stored_text(session)
    await require_sound(opened, 4)


@erases
async def test_shared_entry_is_kept_or_erased_as_requested(opened: Store) -> None:
    session = await opened.create(id="s")
    shared, own = await session.append(user(CANARY), assistant("two"))
    fork = await session.fork(at=shared, id="f")
    deep = await fork.fork(id="g")
    with pytest.raises(SessionHasForks) as refused:
        await session.erase_entries([shared, own])
    assert refused.value.forks == ("f", "g")
    assert (await opened.erasures(), await said(session)) == ([], [CANARY, "two"])
    with pytest.raises(InvalidEntry, match="shared with another session: erase it there"):
        await fork.erase_entries([shared])

    kept = await session.erase_entries([shared, own], forks="keep")
    (line,) = kept.sessions
    assert (line.erased, line.kept, line.kept_for) == (((1, 1),), ((0, 0),), ("f", "g"))
    assert [copy.session for copy in kept.copies if copy.kind == "fork"] == ["f", "g"]
    assert await said(session) == [CANARY]
    assert await said(deep) == [CANARY]

    await deep.append(user("deeper"))
    erased = await session.erase_entries([shared], forks="erase")
    assert [copy for copy in erased.copies if copy.kind == "fork"] == []
    for each, left in ((session, []), (fork, []), (deep, ["deeper"])):
        assert await said(each) == left
        assert (await each.info()).first_text == (left[0] if left else None)
    assert await opened.search(CANARY) == []
    await require_sound(opened, 2)


@erases
async def test_erasing_entries_is_rejected_if_forks_share_all_of_them(opened: Store) -> None:
    session = await opened.create(id="s")
    first, second = await session.append(user(CANARY), assistant("two"))
    await session.fork(id="f")

    with pytest.raises(SessionHasForks, match="share all entries to erase") as refused:
        await session.erase_entries([first, second], forks="keep")

    assert refused.value.forks == ("f",)
    assert (await opened.erasures(), await said(session)) == ([], [CANARY, "two"])
    done = await session.erase_entries([first], forks="erase")
    assert (await session.erase_entries([first], forks="keep")).id == done.id
    await require_sound(opened, 1)


@erases
async def test_erasing_shared_and_already_erased_entries_is_rejected(
    opened: Store,
) -> None:
    session = await opened.create(id="s")
    shared = await session.append(user(CANARY))
    await session.fork(id="f")
    own = await session.append(user("two"))
    done = await session.erase_entries([own])

    with pytest.raises(SessionHasForks, match="share all entries to erase") as refused:
        await session.erase_entries([own, shared], forks="keep")

    assert refused.value.forks == ("f",)
    assert [each.id for each in await opened.erasures()] == [done.id]
    assert await said(session) == [CANARY]
    await require_sound(opened, 1)


@erases
async def test_entries_that_cannot_be_erased_are_rejected(opened: Store) -> None:
    session = await opened.create(id="s")
    message = await session.append(user("a"))
    change = await session.append(ModelChange("x:y"))
    note = await session.note(Note("mine", {"word": CANARY}), about=message)
    moved = await session.branch(message)
    assert moved is not None
    for entry, why in ((change, "holds no content"), (moved, "is not part of the conversation")):
        with pytest.raises(InvalidEntry, match=why):
            await session.erase_entries([note, entry])
    with pytest.raises(EntryNotFound):
        await session.erase_entries(["s/99"])
    nothing: list[str] = []
    for entries in (nothing, "s/0"):
        with pytest.raises(WrongArgument):
            await session.erase_entries(entries)
    assert await opened.erasures() == []
    await session.erase_entries([note])
    assert [entry async for entry in session.notes("mine")] == []
    assert await said(session) == ["a"]
    await session.erase()
    with pytest.raises(Erased):
        await session.erase_entries([message])


async def test_store_without_entry_erasure_raises_unsupported(opened: Store) -> None:
    session = await opened.create(id="s")
    entry = await session.append(user("a"))
    if opened.capabilities.erase:
        return
    with pytest.raises(Unsupported, match="single entries"):
        await session.erase_entries([entry])
    assert await said(session) == ["a"]


async def test_session_erasure_with_a_wrong_expected_head_is_rejected(opened: Store) -> None:
    session = await opened.create(id="s")
    await session.append(user("a"))
    head = session.head
    await (await opened.open("s")).append(assistant("b"))
    for call in (
        lambda: session.erase(expected_head=head),
        lambda: opened.erase("s", expected_head=head),
    ):
        with pytest.raises(HeadConflict):
            await call()
    assert await said(session) == ["a", "b"]
    done = await session.erase(expected_head=head + 1)
    assert done.is_complete
    if opened.capabilities.erase:
        assert (await opened.erase("s", expected_head=head + 1)).id == done.id
    with pytest.raises((Erased, SessionNotFound)):
        await opened.open("s")
    with pytest.raises(WrongArgument, match="expected_head is for one session"):
        await opened.erase(everything=True, expected_head=3)
