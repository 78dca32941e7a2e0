"""Knowledge folders: passages are recalled, file changes are indexed, other files are ignored."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, MemoryConfig, Runtime, user
from perdure.client.agents.files.reader import agent_of_text
from perdure.client.agents.files.writer import agent_text
from perdure.client.store import Store
from perdure.errors import ConfigError, Unsupported, WrongArgument
from perdure.memory.reports import ImportedFolder
from perdure.testing import ScriptedModel
from tests.fakes.unreadable import unreadable

HOTELS = "# Travel\n\n## Hotels\n\nWe book the Aurora near the river.\n\n## Food\n\nNo nuts.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "travel.md").write_text(HOTELS)
    (docs / "deep" / "office.txt").write_text("The office has a blue door.\n")
    return docs


async def recalled(store: Store, question: str, **scope: str) -> list[tuple[str, str | None]]:
    hits = await store.memory.recall(question, **scope)  # pyright: ignore[reportArgumentType] - of names
    return [(hit.source.path, hit.source.heading) for hit in hits if hit.source is not None]


async def test_passages_are_recalled_with_path_and_heading(store: Store, folder: Path) -> None:
    done = await store.memory.import_folder(folder)
    assert done == ImportedFolder(2, 4, added=("travel.md", "deep/office.txt"))
    (best, *_) = await store.memory.recall("Which hotel do we book near the river?")
    assert best.kind == "knowledge"
    assert "Aurora" in best.text
    assert best.source is not None
    assert (best.source.path, best.source.heading) == ("travel.md", "Travel / Hotels")
    assert await recalled(store, "the blue door") == [("deep/office.txt", None)]
    assert await store.recent() == []


async def test_changed_deleted_and_renamed_files_are_reindexed(store: Store, folder: Path) -> None:
    await store.memory.import_folder(folder)
    assert (await store.memory.import_folder(folder)) == ImportedFolder(2, 4)
    (folder / "travel.md").write_text(HOTELS.replace("Aurora", "Bellevue"))
    (folder / "deep" / "office.txt").rename(folder / "door.txt")
    done = await store.memory.import_folder(folder)
    assert (done.added, done.changed, done.removed) == (
        ("door.txt",),
        ("travel.md",),
        ("deep/office.txt",),
    )
    texts = [hit.text for hit in await store.memory.recall("hotel river door office")]
    assert not any("Aurora" in text for text in texts)
    assert any("Bellevue" in text for text in texts)
    assert await recalled(store, "blue door") == [("door.txt", None)]
    (folder / "travel.md").write_text(HOTELS)  # as it was before
    await store.memory.import_folder(folder)
    assert any("Aurora" in hit.text for hit in await store.memory.recall("hotel river"))
    for name in ("travel.md", "door.txt"):
        (folder / name).unlink()
    assert (await store.memory.import_folder(folder)).files == 0
    assert await store.memory.recall("hotel river door office") == []
    assert (await store.verify()).is_ok


async def test_knowledge_of_other_scope_is_never_returned(store: Store, folder: Path) -> None:
    await store.memory.import_folder(folder, subject="ana")
    await store.memory.import_folder(folder, agent="helper")
    assert await recalled(store, "river") == []
    assert await recalled(store, "river", subject="bob") == []
    assert await recalled(store, "river", subject="bob", knowledge_of="other") == []
    assert len(await recalled(store, "Aurora river", subject="ana")) == 3
    assert len(await recalled(store, "Aurora river", subject="bob", knowledge_of="helper")) == 3
    assert len(await recalled(store, "Aurora river", agent="helper")) == 3
    assert await recalled(store, "Aurora river", agent="other") == []
    await store.erase(subject="ana")
    assert await recalled(store, "Aurora river", subject="ana") == []
    assert len(await recalled(store, "Aurora river", agent="helper")) == 3


async def test_non_text_files_are_reported(store: Store, folder: Path) -> None:
    await store.memory.import_folder(folder)
    outside = folder.parent / "outside.txt"
    outside.write_text("a private thing")
    (folder / "link.txt").symlink_to(outside)
    (folder / "out").symlink_to(folder.parent)
    (folder / "binary.txt").write_bytes(b"a\0b")
    (folder / "latin.md").write_bytes("Überfahrt".encode("latin-1"))
    (folder / "huge.txt").write_bytes(b"word " * 300_000)
    os.mkfifo(folder / "pipe.txt")
    (folder / "key.txt").write_text("token ghp_" + "a1B2" * 9)
    (folder / ".hidden.md").write_text("hidden thing")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    done = await store.memory.import_folder(folder)
    assert {each.path: each.reason.partition(" (")[0] for each in done.problems} == {
        "out": "links are not followed",
        "link.txt": "links are not followed",
        "binary.txt": "it is binary",
        "latin.md": "it is not UTF-8",
        "huge.txt": "it is larger than 1,048,576 bytes",
        "pipe.txt": "it is no regular file",
        "key.txt": "1 of its passages look like a credential and are left out",
        "caf\\udce9.txt": "its name is not UTF-8",
    }
    assert await recalled(store, "private hidden thing token") == []
    assert len(await recalled(store, "the river near the office")) == 4


async def test_knowledge_file_that_became_unreadable_keeps_its_passages(
    store: Store, folder: Path
) -> None:
    await store.memory.import_folder(folder)
    (folder / "travel.md").write_bytes(b"\xff")
    done = await store.memory.import_folder(folder)
    assert (done.files, done.removed, len(done.problems)) == (2, (), 1)
    assert ("travel.md", "Travel / Hotels") in await recalled(store, "river")
    os.rename(folder, f"{folder}-gone")  # noqa: PTH104 - a Path has no rename for async code
    with pytest.raises(WrongArgument, match="no folder"):
        await store.memory.import_folder(folder)
    assert ("travel.md", "Travel / Hotels") in await recalled(store, "river")


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a folder that every user can read, unlike the folders of pytest."""
    with tempfile.TemporaryDirectory() as place:
        (closed := Path(place, "above", "closed")).mkdir(parents=True)
        Path(place).chmod(0o755)
        (closed / "office.txt").write_text("The office has a blue door.")
        Path(place, "travel.md").write_text(HOTELS)
        yield Path(place)


async def test_knowledge_folder_that_became_unreadable_keeps_its_passages(
    store: Store, public_folder: Path
) -> None:
    await store.memory.import_folder(public_folder)
    with unreadable(public_folder / "above" / "closed"):
        done = await store.memory.import_folder(public_folder)
    assert (done.files, done.removed) == (2, ())
    (problem,) = done.problems
    assert problem.path == "above/closed"
    assert problem.reason.startswith("the folder cannot be read")
    assert await recalled(store, "the blue door") == [("above/closed/office.txt", None)]


async def test_link_to_a_folder_is_indexed_as_the_folder(store: Store, folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    (folder / "loop").symlink_to("loop")
    (folder / "self.md").symlink_to("self.md")
    done = await store.memory.import_folder(link)
    assert (done.files, done.passages) == (2, 4)
    assert [each.path for each in done.problems] == ["self.md"]
    assert ("deep/office.txt", None) in await recalled(store, "the blue door")


def deep_in(folder: Path, levels: int) -> None:
    """Create `levels` nested folders below `folder`, and a file in the innermost."""
    path = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=path)
        below = os.open("d", os.O_RDONLY, dir_fd=path)
        os.close(path)
        path = below
    os.close(os.open("deepest.md", os.O_CREAT | os.O_WRONLY, dir_fd=path))
    os.close(path)


async def test_too_deep_knowledge_folder_does_not_fail_a_turn(store: Store, folder: Path) -> None:
    deep_in(folder, 200)
    done = await store.memory.import_folder(folder)
    (problem,) = done.problems
    assert (problem.path, problem.reason) == ("/".join("d" * 65), "it is more than 64 folders deep")
    assert done.files == 2
    model = ScriptedModel(["At the Aurora."])
    agent = Agent("helper", model="scripted:any", memory=MemoryConfig(knowledge=(str(folder),)))
    async with Runtime(store, agents=[agent], models=model) as runtime:
        chat = await runtime.start("helper")
        await chat.send("Which hotel do we book?")
    assert "Aurora" in model.requests[0].messages[0].text


async def test_folder_larger_than_a_batch_is_indexed_whole(store: Store, folder: Path) -> None:
    for number in range(9):
        (folder / f"large{number}.txt").write_text(f"number{number}{' ' * 900_000}")
    done = await store.memory.import_folder(folder)
    assert (done.files, done.passages) == (11, 13)
    assert (await store.memory.import_folder(folder)) == ImportedFolder(11, 13)
    assert [path for path, _ in await recalled(store, "number8")] == ["large8.txt"]


async def test_turn_receives_the_knowledge_of_its_agent(store: Store, folder: Path) -> None:
    model = ScriptedModel(["At the Aurora.", "At the Bellevue.", "Nowhere."])
    agent = Agent("helper", model="scripted:any", memory=MemoryConfig(knowledge=(str(folder),)))
    plain = Agent("plain", model="scripted:any", memory=MemoryConfig())
    async with Runtime(store, agents=[agent, plain], models=model) as runtime:
        chat = await runtime.start("helper", subject="ana")
        await chat.send("Which hotel do we book?")
        assert "From the file travel.md, Travel / Hotels: " in model.requests[-1].messages[0].text
        assert "Aurora" in model.requests[-1].messages[0].text
        (folder / "travel.md").write_text(HOTELS.replace("Aurora", "Bellevue Palace"))
        await chat.send("And which hotel now?")
        assert "Bellevue" in model.requests[-1].messages[0].text
        other = await runtime.start("plain", subject="ana")
        await other.session.append(user("x"))
        await other.send("Which hotel do we book?")
        assert "From the file" not in "".join(each.text for each in model.requests[-1].messages)
    listed = await store.recent(scope="all")
    assert {each.status for each in listed if each.origin == "knowledge"} == {"active"}


async def test_turn_continues_if_a_knowledge_folder_is_unreadable(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder.parent / "work"
    place.mkdir()
    (place / "link").symlink_to(folder)
    monkeypatch.chdir(place)
    for wrong in ("../docs", "link", "missing"):
        model = ScriptedModel(["Hello"])
        agent = Agent("helper", model="scripted:any", memory=MemoryConfig(knowledge=(wrong,)))
        async with Runtime(store, agents=[agent], models=model) as runtime:
            chat = await runtime.start("helper")
            assert (await chat.send("Which hotel near the river?")).text == "Hello"
            (entry,) = await store.backend.notes(chat.id, ("context_recalled",))
            assert b"knowledge: " in entry.body
        assert "Aurora" not in model.requests[0].messages[0].text


def test_knowledge_folder_outside_the_working_folder_is_rejected() -> None:
    agent = Agent("helper", model="a:b", memory=MemoryConfig(knowledge=("docs",)))
    assert "knowledge:" in agent_text(agent)
    for wrong in ("/etc", "../docs", "docs/../../x"):
        text = agent_text(agent).replace("docs", wrong)
        with pytest.raises(ConfigError, match="below the working folder"):
            agent_of_text(text)


async def test_store_of_session_files_cannot_import_knowledge(folder: Path, tmp_path: Path) -> None:
    async with perdure.open(f"jsonl:///{tmp_path / 'files'}") as store:
        with pytest.raises(Unsupported):
            await store.memory.import_folder(folder)
