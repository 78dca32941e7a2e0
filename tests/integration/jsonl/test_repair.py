"""Damaged session files: readable data is saved elsewhere, and the files stay unchanged."""

from __future__ import annotations

import random
import shutil
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from perdure.apps.maintenance.backup import back_up
from perdure.apps.maintenance.repair import repair_store
from perdure.client.open import open as open_by_address
from perdure.errors import ConfigError, StoreCorrupt
from perdure.session.media.inline import media
from perdure.session.messages import assistant, user
from perdure.stores.jsonl.store import DialectName
from perdure.stores.maintenance.protocol import RepairReport
from tests.fakes.samples import case
from tests.fakes.session_files import file_of, files_below

TURNS = 8
Held = dict[str, tuple[str, bytes]]


@pytest.fixture
def address(folder: Path, dialect: DialectName) -> str:
    return f"jsonl:///{folder}?dialect={dialect}"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'repaired.db'}"


async def filled(address: str) -> None:
    async with open_by_address(address) as store:
        for number in range(2):
            session = await store.create(id=f"s{number}", title=f"title {number}")
            for turn in range(TURNS):
                text = f"{number} {turn} " + "word " * (turn * 70)
                await session.append(user(text), assistant(f"answer {text}"))


async def content(address: str) -> Held:
    async with open_by_address(address) as store:
        backend = store.backend
        return {
            entry.id: (entry.kind, entry.body)
            for each in await backend.maintenance.segment_states()
            for entry in await backend.entries(each.stream)
        }


async def check_repaired(place: str, before: Held, done: RepairReport) -> None:
    """Check that the repaired folder is valid and has everything except the reported losses."""
    lost = {f"{loss.stream}/{loss.seq}" for loss in done.losses if loss.seq is not None}
    async with open_by_address(place) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
    after = await content(place)
    assert before.keys() <= after.keys()
    assert {id_ for id_, entry in before.items() if after[id_] != entry} <= lost


def with_line(path: Path, number: int, line: bytes | None) -> None:
    """Replace a line by `line`; None removes it."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number : number + 1] = [] if line is None else [line]
    path.write_bytes(b"".join(lines))


async def test_repair_of_a_damaged_line_loses_only_the_content_of_that_line(
    address: str, dialect: DialectName, folder: Path, tmp_path: Path
) -> None:
    await filled(address)
    before = await content(address)
    for number, line in product(
        [0, 1, 4, 7, -2], [b"{\n", b"\xff\xfe\n", b'{"type":"else"}\n', None]
    ):
        with case((number, line)), TemporaryDirectory(dir=tmp_path) as made:
            copy = shutil.copytree(folder, Path(made, "sessions"))
            await check_repair_of_line(copy, dialect, before, number, line)


async def check_repair_of_line(
    folder: Path, dialect: DialectName, before: Held, number: int, line: bytes | None
) -> None:
    """Damage a line of a session in `folder`, and repair the store into one beside `folder`."""
    with_line(file_of(folder, "s1"), number, line)
    damaged = {path: path.read_bytes() for path in files_below(folder, "*.jsonl")}
    address, place = f"jsonl:///{folder}?dialect={dialect}", f"sqlite:///{folder}.db"

    told: list[tuple[int, int]] = []
    done = await repair_store(
        address, to=place, on_progress=lambda done, steps: told.append((done, steps))
    )

    assert all(0 <= passed <= steps for passed, steps in told)
    assert told[-1][0] == told[-1][1]
    assert done.is_damaged
    assert done.losses
    assert {loss.stream for loss in done.losses} == {"s1"}
    await check_repaired(place, before, done)
    assert {path: path.read_bytes() for path in files_below(folder, "*.jsonl")} == damaged


async def test_acknowledged_entries_survive_damaged_last_line(
    address: str, place: str, folder: Path
) -> None:
    """Only the last line, which marks the commit as complete, is damaged."""
    async with open_by_address(address) as store:
        await (await store.create(id="s")).append(*(user(f"said {n}") for n in range(9)))
    before = await content(address)
    path = file_of(folder, "s")
    with_line(path, path.read_bytes().count(b"\n") - 1, b"{\n")
    async with open_by_address(address) as store:
        assert not (await store.backend.maintenance.verify()).is_ok

    done = await repair_store(address, to=place)

    assert [loss.seq for loss in done.losses if loss.problem == "it is gone"] == [8]
    async with open_by_address(place) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
    after = await content(place)
    assert [id_ for id_ in before if after[id_] != before[id_]] == ["s/8"]


async def test_store_with_lost_entries_is_not_backed_up(
    address: str, tmp_path: Path, folder: Path
) -> None:
    await filled(address)
    path = file_of(folder, "s1")
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(StoreCorrupt, match="s1"):
        await back_up(address, tmp_path / "backup")


async def test_repair_of_damaged_content_loses_no_session(
    address: str, place: str, folder: Path, tmp_path: Path
) -> None:
    image = media(b"\x89PNG" * 50, "image/png")
    async with open_by_address(address) as store:
        await (await store.create(id="s")).append(user("look", image))
    before = await content(address)
    (kept,) = [each for each in (folder / ".perdure" / "blobs").rglob("sha256-*") if each.is_file()]
    kept.write_bytes(b"not what it was")

    done = await repair_store(address, to=place)

    assert [(loss.stream, loss.seq, kept.name in loss.problem) for loss in done.losses] == [
        ("s", 0, True),  # which entry shows it
        (None, None, True),
    ]
    assert await content(place) == before
    kept.unlink()
    async with open_by_address(address) as store:
        (problem,) = (await store.backend.maintenance.verify()).problems
    assert (problem.stream, kept.name in problem.problem) == ("s", True)
    with pytest.raises(StoreCorrupt, match=kept.name):
        await back_up(address, tmp_path / "backup")


@pytest.mark.all_only
async def test_repair_succeeds_after_a_flipped_bit_anywhere(
    address: str, tmp_path: Path, folder: Path
) -> None:
    await filled(address)
    before = await content(address)
    path, chance = file_of(folder, "s1"), random.Random(5)
    whole, damaged = path.read_bytes(), 0
    for number in range(25):
        place = f"sqlite:///{tmp_path / f'repaired-{number}.db'}"
        changed = bytearray(whole)
        changed[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        done = await repair_store(address, to=place)
        damaged += done.is_damaged
        if done.is_damaged:
            await check_repaired(place, before, done)
    assert damaged > 15


async def test_repair_of_a_file_cut_anywhere_reports_losses(
    address: str, tmp_path: Path, folder: Path
) -> None:
    await filled(address)
    before = await content(address)
    path = file_of(folder, "s1")
    whole = path.read_bytes()
    for number in range(1, 8):
        place = f"sqlite:///{tmp_path / f'repaired-{number}.db'}"
        path.write_bytes(whole[: len(whole) * number // 8])
        done = await repair_store(address, to=place)
        assert done.losses
        await check_repaired(place, before, done)


async def test_repair_keeps_lines_of_another_program(
    address: str, place: str, folder: Path
) -> None:
    await filled(address)
    path = file_of(folder, "s1")
    with path.open("ab") as file:
        file.write(b'{"type":"custom","id":"77","parentId":null,"customType":"x","data":{"a":1}}\n')
    before = await content(address)
    with_line(path, 3, b"{\n")

    done = await repair_store(address, to=place)

    assert done.changed == ("s1",)
    await check_repaired(place, before, done)


async def test_repair_without_a_sqlite_target_is_refused(
    address: str, place: str, folder: Path
) -> None:
    await filled(address)
    assert not (await repair_store(address, to=place)).is_damaged
    with_line(file_of(folder, "s1"), 2, b"{\n")
    for other in (f"{address}-more", "memory:"):  # neither can express an erased body
        with pytest.raises(ConfigError, match="sqlite:///FILE"):
            await repair_store(address, to=other)
    with pytest.raises(ConfigError, match="name that store"):
        await repair_store(address)
