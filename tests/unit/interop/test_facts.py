"""Facts in export and import of a whole store: one file per subject, without forgotten facts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import perdure
from perdure import user
from perdure.client.store import Store
from perdure.errors import FormatError, Unsupported
from perdure.interop.exports import export_session
from perdure.interop.facts import import_facts
from perdure.interop.formats.sources.content import Held
from perdure.session.ids import StreamId
from perdure.session.memory.kinds import FactRemembered, memory_stream
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, CommitResult
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.samples import case


async def filled(store: Store) -> None:
    """Remember facts of two subjects and one without subject; correct one and forget one."""
    session = await store.create(subject="ana")
    said = await session.append(user("I like tea"))
    tea = await store.memory.remember("Ana likes tea", subject="ana", source=said)
    await store.memory.remember("Ana hates rain", subject="ana", agent="helper", said_by="tool")
    gone = await store.memory.remember("Ana has a secret", subject="ana")
    await store.memory.correct(tea.id, "Ana likes green tea")
    await store.memory.forget(gone.id)
    await store.memory.remember("Bob is tall", subject="bob")
    await store.memory.remember("the office is closed on Mondays")


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with perdure.open("memory:") as opened:
        yield opened


def files_in(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def test_export_and_import_keep_facts_byte_for_byte(store: Store, tmp_path: Path) -> None:
    await filled(store)
    exported = await store.export("perdure", tmp_path / "one")
    assert [each.error for each in exported] == [None] * 4
    one = files_in(tmp_path / "one")
    assert len(one) == 4
    for name, content in one.items():
        assert "ana" not in name
        assert b"secret" not in content
    async with perdure.open("memory:") as other:
        assert (await other.import_files([tmp_path / "one"])).is_ok
        for subject in ("ana", "bob", None):
            here = await store.memory.facts(subject=subject)
            there = await other.memory.facts(subject=subject)
            assert [each.text for each in there] == [each.text for each in here]
            assert [each.history for each in there] == [each.history for each in here]
            assert all(each.is_received for each in there)
        await other.export("perdure", tmp_path / "two")
        assert files_in(tmp_path / "two") == one
        again = await other.import_files([tmp_path / "one"])
        assert again.entries == 0
        assert len(await other.memory.facts(scope="namespace")) == 4
        assert (await other.verify()).is_ok


async def test_import_adds_new_facts_and_keeps_existing_facts(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await store.export("perdure", tmp_path / "one")
    async with perdure.open("memory:") as other:
        own = await other.memory.remember("Ana sings", subject="ana")
        await other.memory.remember("Ana hates rain", subject="ana", agent="helper", said_by="tool")
        assert (await other.import_files([tmp_path / "one"])).is_ok
        facts = {each.text: each for each in await other.memory.facts(subject="ana")}
        assert {text: each.is_received for text, each in facts.items()} == {
            "Ana sings": False,
            "Ana hates rain": False,
            "Ana likes green tea": True,
        }
        await other.memory.forget(facts["Ana likes green tea"].id)
        outcome = await other.import_files([tmp_path / "one"])
        assert "1 facts were forgotten here, and stay so" in outcome.warnings
        assert {each.text for each in await other.memory.facts(subject="ana")} == {
            "Ana sings",
            "Ana hates rain",
        }
        await other.memory.correct(own.id, "Ana sings well")
        (fact,) = [f for f in await other.memory.facts(subject="ana") if f.id == own.id]
        assert not fact.is_received
    (tea,) = [f for f in await store.memory.facts(subject="ana") if "tea" in f.text]
    async with perdure.open("memory:") as other:
        await other.import_files([tmp_path / "one"])
        await store.memory.correct(tea.id, "Ana likes black tea")
        await store.export("perdure", tmp_path / "later")
        await other.import_files([tmp_path / "later"])
        texts = [each.text for each in await other.memory.facts(subject="ana")]
        assert sorted(texts) == ["Ana hates rain", "Ana likes black tea"]


async def test_import_assigns_another_subject_to_facts_on_request(
    store: Store, tmp_path: Path
) -> None:
    await filled(store)
    file = tmp_path / "one" / f"{memory_stream('bob')}.jsonl"
    await store.export("perdure", tmp_path / "one")
    async with perdure.open("memory:") as other:
        assert (await other.import_files([file], subject="robert")).is_ok
        (fact,) = await other.memory.facts(subject="robert")
        assert fact.text == "Bob is tall"
        assert await other.memory.facts(subject="bob") == []


async def test_two_concurrent_imports_add_each_fact_once(store: Store) -> None:
    stream, clock = memory_stream("ana"), ManualClock()
    files: list[Held] = []
    for text in ("Ana likes tea", "Ana sings"):
        await store.memory.remember(text, subject="ana")
        files.append(Held((await export_session(store.backend, stream)).content))

    class Raced(MemoryStore):
        has_rival = False

        async def commit(self, commit: Commit) -> CommitResult:
            if self.has_rival:
                self.has_rival = False
                await import_facts(self, files[1], subject=None, clock=clock)
            return await super().commit(commit)

    raced = Raced(clock=clock, random=SeededRandom(1))
    await import_facts(raced, files[0], subject=None, clock=clock)
    raced.has_rival = True
    report = await import_facts(raced, files[1], subject=None, clock=clock)
    assert report.entries == 0
    kinds = [entry.kind for entry in await raced.entries(stream)]
    assert kinds.count(FactRemembered.kind) == 2


async def test_facts_of_erased_subject_are_not_imported_again(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await store.export("perdure", tmp_path / "one")
    await store.erase(subject="ana")
    outcome = await store.import_files([tmp_path / "one"])
    assert any("was erased; nothing was imported" in each for each in outcome.warnings)
    assert await store.memory.facts(subject="ana") == []


async def test_file_with_other_entries_than_facts_is_rejected(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await store.export("perdure", tmp_path / "one")
    stream = memory_stream("bob")
    good = (tmp_path / "one" / f"{stream}.jsonl").read_bytes()
    header, fact, end = good.splitlines()
    ended = b'{"seq":1,"id":"%b/1","lane":"side","at":1,"kind":"session_ended","v":1,"body":{}}'
    other = b'{"seq":1,"id":"%b/1","lane":"side","at":1,"kind":"fact_forgotten","v":1,"body":{}}'
    two = end.replace(b'"entries":1', b'"entries":2')
    wrong = {
        "another subject": [header.replace(b'"bob"', b'"ana"'), fact, end],
        "no fact": [header, fact, ended % stream.encode(), two],
        "about nothing": [header, fact, other % stream.encode(), two],
        "about itself": [header, fact.replace(b'"v":1', b'"v":1,"about":"x/0"'), end],
        "cut off": [header, fact],
    }
    for name, lines in wrong.items():
        with case(name):
            file = tmp_path / "wrong.jsonl"
            file.write_bytes(b"\n".join(lines) + b"\n")
            async with perdure.open("memory:") as empty:
                (error,) = (await empty.import_files([file])).errors
                assert isinstance(error, FormatError)
                assert await empty.memory.facts(scope="namespace") == []
                assert await empty.backend.notes_of_all(("fact_remembered",)) == []


async def test_markdown_and_query_exports_contain_no_facts(store: Store, tmp_path: Path) -> None:
    await filled(store)
    assert len(await store.export("markdown", tmp_path / "md")) == 1
    assert await store.export("perdure", tmp_path / "some", query="nothing") == []


async def test_session_file_with_facts_is_rejected(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await store.export("perdure", tmp_path / "one")
    async with perdure.open(f"jsonl:///{tmp_path / 'files'}") as other:
        outcome = await other.import_files([tmp_path / "one"])
        assert [type(error) for error in outcome.errors] == [Unsupported] * 3


@pytest.mark.parametrize("kind", ["secrets", "paths"])
async def test_redacted_export_of_facts_has_placeholders(
    store: Store, tmp_path: Path, kind: perdure.types.Redaction
) -> None:
    await store.memory.remember("Ana keeps notes in /home/ana/notes", subject="x")
    (file,) = await store.export("perdure", tmp_path / "one", redact=[kind])
    assert file.path is not None
    assert (b"/home/ana" in file.path.read_bytes()) == (kind == "secrets")
    async with perdure.open("memory:") as other:
        assert (await other.import_files([tmp_path / "one"])).is_ok
        assert len(await other.memory.facts(subject="x")) == 1
    assert StreamId(file.session) == memory_stream("x")
