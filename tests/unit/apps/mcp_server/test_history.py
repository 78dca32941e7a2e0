"""The answers that an MCP client gets."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import assistant, user
from perdure.apps.mcp_server import history
from perdure.apps.mcp_server.history import MOST_CHARACTERS, History, Notebook, Scope
from perdure.errors import EntryNotFound, FactNotFound, SessionNotFound
from tests.fakes.embedders import WordEmbedder


async def test_scope_limits_output_of_every_tool() -> None:
    async with perdure.open("memory:") as store:
        for subject in ("ana", "bob", None):
            session = await store.create(id=f"of-{subject}", subject=subject)
            await session.append(user(f"the moon of {subject}"))
            await store.memory.remember(f"{subject} likes the moon", subject=subject)
        for scope, shown in (
            (Scope(None, is_all=False), {"None"}),
            (Scope("ana", is_all=False), {"ana"}),
            (Scope("nobody", is_all=False), set[str]()),
            (Scope(None, is_all=True), {"ana", "bob", "None"}),
        ):
            history = History(store, scope)
            answers = [
                await history.recall("Which moon?"),
                await history.search_sessions("moon"),
                await history.list_sessions(),
                await history.list_facts(),
            ]
            for answer in answers:
                found = {name for name in ("ana", "bob", "None") if f"{name}" in answer}
                assert found == shown, (scope.subject, answer)
            for name in {"ana", "bob", "None"} - shown:
                with pytest.raises(SessionNotFound):
                    await history.read_session(f"of-{name}")
                with pytest.raises(EntryNotFound) as hidden:
                    await history.read_entry(f"of-{name}/0")
                with pytest.raises(EntryNotFound) as missing:
                    await history.read_entry(f"of-{name}/9")
                assert str(hidden.value).replace("/0", "/9") == str(missing.value)


@pytest.mark.parametrize("tool", ["recall", "search_sessions"])
async def test_hit_erased_during_a_search_is_omitted(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with perdure.open("memory:") as store:
        for name in ("gone", "left"):
            await (await store.create(id=name)).append(user(f"the moon of {name}"))
        fact = await store.memory.remember("gone moon")
        found = {"recall": history.recall_anyway, "search_sessions": type(store).search}[tool]

        async def and_erase(*args: Any, **named: Any) -> object:
            hits = await found(*args, **named)
            await store.erase("gone")
            await store.memory.forget(fact.id)
            return hits

        monkeypatch.setattr(history, "recall_anyway", and_erase)
        monkeypatch.setattr(type(store), "search", and_erase)
        answer = await getattr(History(store, Scope(None, is_all=False)), tool)("moon")
    assert "the moon of left" in answer
    assert "gone" not in answer


async def test_fact_of_another_subject_cannot_be_corrected_or_forgotten() -> None:
    async with perdure.open("memory:") as store:
        fact = await store.memory.remember("Ana likes the moon", subject="ana")
        notebook = Notebook(store, Scope("bob", is_all=False))
        with pytest.raises(FactNotFound):
            await notebook.forget(fact.id)
        with pytest.raises(FactNotFound):
            await notebook.correct(fact.id, "Ana likes the sun")
        assert [each.text for each in await store.memory.facts(subject="ana")] == [fact.text]


async def test_long_entry_is_read_in_pieces() -> None:
    text = "".join(f"{number:05} " for number in range(10_000))
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        await session.append(assistant(text))
        history, read, offset = History(store, Scope(None, is_all=False)), "", 0
        while offset < len(text):
            piece = await history.read_entry("s/0", offset)
            read += piece[:MOST_CHARACTERS]
            offset += MOST_CHARACTERS
    assert read == text


async def test_source_of_a_fact_must_have_the_same_subject() -> None:
    async with perdure.open("memory:") as store:
        for subject in ("ana", "bob"):
            session = await store.create(id=f"of-{subject}", subject=subject)
            await session.append(user("I like the moon"))
        notebook = Notebook(store, Scope("ana", is_all=False))
        with pytest.raises(EntryNotFound):
            await notebook.remember("Bob likes the moon", "of-bob/0")
        await notebook.remember("Ana likes the moon", "of-ana/0")
        (fact,) = await store.memory.facts(subject="ana")
        assert fact.sources == ("of-ana/0",)
        await store.erase("of-ana")
        assert await store.memory.facts(subject="ana") == []


async def test_sessions_out_of_scope_do_not_count_toward_the_limit() -> None:
    async with perdure.open("memory:") as store:
        own = await store.create(id="own")
        await own.append(user("a moon, and much else that was said on that day at sea"))
        for number in range(30):
            session = await store.create(id=f"of-ana-{number}", subject="ana")
            await session.append(user("moon moon moon"))
        history = History(store, Scope(None, is_all=False))
        assert "own/0" in await history.search_sessions("moon", limit=1)
        assert "session own" in await history.list_sessions(limit=1)


async def test_reused_session_id_shows_no_text_of_another_subject() -> None:
    async with perdure.open("memory:") as store:
        history = History(store, Scope(None, is_all=False))
        first = await store.create(id="reused")
        await first.append(user("the moon"))
        assert "the moon" in await history.search_sessions("moon")
        await store.erase("reused")
        second = await store.create(id="reused", subject="ana", reuse_erased=True)
        await second.append(user("the moon of ana"))
        assert "ana" not in await history.search_sessions("moon")


async def test_no_tool_shows_part_of_a_secret() -> None:
    lines = ["".join(f"{(n * 7919 + m) % 36:x}Q" for m in range(32)) for n in range(40)]
    body = "\n".join(lines)
    block = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    for text in (f"{block} moon", "word " * 236 + block, "sun " * 150 + block + " moon" * 150):
        async with perdure.open("memory:") as store:
            session = await store.create(id="s")
            await session.append(user(text))
            await session.append(user("the moon and the sun, a word"))
            history = History(store, Scope(None, is_all=False))
            shown = [
                await history.read_session("s"),
                await history.read_entry("s/0"),
                *[await history.read_entry("s/0", offset) for offset in (20, 700, 1_000)],
                *[await history.recall(each) for each in ("Which moon?", "Which sun?", "word")],
                *[await history.search_sessions(each) for each in ("moon", "private", lines[20])],
            ]
            for answer in shown:
                assert not [line for line in lines if line[:8] in answer or line[-8:] in answer]


async def test_recall_reports_a_failed_embedder() -> None:
    embedder = WordEmbedder(alike=[("hotel", "lodging")])
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        await session.append(user("Which hotel?"))
        scope = Scope(None, is_all=False)
        assert "hotel" not in await History(store, scope).recall("lodging")
        history = History(store, scope, embedder)
        assert "Which hotel?" in await history.recall("lodging")
        embedder.failure = OSError("down")
        answer = await history.recall("lodging")
        assert answer.startswith("Only words were compared: words:1: OSError('down')")
        assert "Nothing in earlier sessions is about that." in answer


async def test_recall_shows_facts_and_summaries_with_secrets_masked() -> None:
    token = "ghp_" + "a1B2c3D4" * 5
    async with perdure.open("memory:") as store:
        session = await store.create(id="s")
        await session.append(user("Where do we stay?"))
        await session.end(summary=f"The hotel is booked with {token}.")
        fact = await store.memory.remember("The hotel is quiet", agent="other")
        await store.memory.remember("The hotel of ana", subject="ana")
        history = History(store, Scope(None, is_all=False))
        answer = await history.recall("Which hotel?")
        assert f"fact {fact.id}" in answer
        assert ("The hotel is booked" in answer, token in answer) == (True, False)
        assert "ana" not in answer
        entry = answer.split("entry ")[1].split()[0]
        assert "The hotel is booked" in await history.read_entry(entry)
        limited = History(store, Scope(None, is_all=False, agent="helper"))
        assert "hotel" not in await limited.recall("Which hotel?")
