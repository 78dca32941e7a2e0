"""Deleting flows with their sessions and, on request, with their files."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.client.flows.locations import write_record
from perdure.errors import ConfigError, FlowExists, FlowNotFound, FlowRefusal
from perdure.models.scenario import Hang, Reply, Say, When
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from tests.fakes.chats import until
from tests.fakes.faulty_files import failing_at, planned
from tests.fakes.flow_log import graph
from tests.fakes.flow_stage import FlowStage, ends, hands

LINE = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "a": "owner", "end": "owner"})
AT = "Node `owner-intake` started"
HANGING = Reply(when=When(user_contains=AT), steps=(Say("Wait."), Hang()))
ASKING = ends(AT, "prompt-human")


async def begun(flows: Flows, folder: Path, id: str = "f", record: str = "record") -> Flow:
    return await flows.start(LINE, workspace=folder, id=id, record_folder=record)


async def test_flow_is_deleted_with_sessions_but_files_stay(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, ASKING)
    flows = stage.flows("owner")
    await (await begun(flows, tmp_path)).run()
    gone = await flows.delete("f", by="ana")
    assert gone.sessions == ("f__owner",)
    assert (gone.record, gone.is_record_left) == (str(tmp_path / "record"), True)
    with pytest.raises(FlowNotFound):
        await flows.state("f")
    assert (tmp_path / "record" / "workflow.yaml").exists()


@pytest.mark.parametrize("link", [False, True])
async def test_flows_of_one_workflow_never_share_record_folder(
    tmp_path: Path, *, link: bool
) -> None:
    flows = FlowStage(tmp_path).flows("owner")
    await begun(flows, tmp_path)
    (tmp_path / "other").symlink_to(tmp_path / "record")
    name = "other" if link else "record"
    with pytest.raises(ConfigError, match=r"is the record folder of the flow f; name another one"):
        await begun(flows, tmp_path, "g", name)
    with pytest.raises(FlowNotFound):
        await flows.state("g")
    with pytest.raises(FlowExists):
        await begun(flows, tmp_path, "f", "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    await flows.delete("f")
    await begun(flows, tmp_path, "g", name)


async def test_only_one_of_concurrent_flows_gets_the_record_folder(tmp_path: Path) -> None:
    flows = FlowStage(tmp_path).flows("owner")
    ids = [f"f{n}" for n in range(8)]
    begins = (begun(flows, tmp_path, id) for id in ids)
    ends = await asyncio.gather(*begins, return_exceptions=True)
    (winner,) = (end for end in ends if isinstance(end, Flow))
    assert all(isinstance(end, ConfigError) for end in ends if end is not winner)
    assert [state.run.flow_id for state in await flows.list()] == [winner.id]
    assert (tmp_path / "record" / ".flow").read_text() == winner.id


async def test_flow_that_several_calls_start_concurrently_is_started_once(tmp_path: Path) -> None:
    for number in range(20):
        flows = FlowStage(tmp_path).flows("owner")
        begins = (begun(flows, tmp_path, "f", f"record-{number}") for _ in range(8))
        ends = await asyncio.gather(*begins, return_exceptions=True)
        assert [type(end) for end in ends if not isinstance(end, FlowExists)] == [Flow]


async def test_record_folder_with_an_empty_flow_file_can_be_used(
    tmp_path: Path,
) -> None:
    owner = tmp_path / "record" / ".flow"
    owner.parent.mkdir()
    owner.touch()
    await begun(FlowStage(tmp_path).flows("owner"), tmp_path)
    assert owner.read_text() == "f"


def test_record_folder_is_created_without_file_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: object, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    write_record(StreamId("f"), tmp_path, "the graph")
    assert (tmp_path / ".flow").read_text() == "f"


def test_read_only_record_folder_is_reported_with_its_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is allowed to read the folder but not to write to it."""
    write_record(StreamId("f"), tmp_path, "the graph")
    open_file = Path.open

    def only_read(self: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if "r" not in mode:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return open_file(self, mode, *arguments, **named)

    monkeypatch.setattr(Path, "open", only_read)
    with pytest.raises(ConfigError, match="is the record folder of the flow f"):
        write_record(StreamId("g"), tmp_path, "the graph")


def test_existing_workflow_is_not_rewritten(tmp_path: Path) -> None:
    """Another process that runs the flow might be reading the workflow file."""
    write_record(StreamId("f"), tmp_path, "the graph")
    before = (tmp_path / "workflow.yaml").stat()
    write_record(StreamId("f"), tmp_path, "the graph")
    after = (tmp_path / "workflow.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".flow",
        "findings",
        "workflow.yaml",
    ]


async def test_listing_skips_a_flow_deleted_during_the_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = FlowStage(tmp_path)
    flows = stage.flows("owner")
    for id in "fg":
        await begun(flows, tmp_path, id, id)
    listed = stage.memory.notes_of_all

    async def deleting(kinds: Sequence[str]) -> list[Entry]:
        found = await listed(kinds)
        monkeypatch.undo()
        await flows.delete("f")
        return found

    monkeypatch.setattr(stage.memory, "notes_of_all", deleting)
    assert [state.run.flow_id for state in await flows.list()] == ["g"]


async def test_flow_files_are_deleted_on_request(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, *hands(AT, "record", "plan.md", "a"))
    flows = stage.flows("owner")
    await begun(flows, tmp_path)
    gone = await flows.delete("f", record="remove")
    assert not gone.is_record_left
    assert not (tmp_path / "record").exists()


async def test_failed_file_deletion_is_completed_by_retry(
    tmp_path: Path,
) -> None:
    """The deletion fails at each file in turn; a kill would leave the same state."""
    for number in count(1):
        root = tmp_path / str(number)
        root.mkdir()
        flows = FlowStage(root).flows("owner")
        flow = await begun(flows, root)
        folder = Path((await flow.state()).run.record_folder_path)
        for name in ("a/plan.md", "a/b/more.md", "z.md"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("text")
        with planned(failing_at(number, errno.EIO, "unlink")):
            try:
                await flows.delete("f", record="remove")
            except FlowRefusal as refusal:
                assert "cannot be removed" in str(refusal)  # noqa: PT017 - the last one is none
            else:
                return
        gone = await flows.delete("f", record="remove")
        assert not gone.is_record_left


async def test_empty_folder_is_deleted_without_question(tmp_path: Path) -> None:
    """A kill between the deletions of the last file and of the folder leaves an empty folder."""
    flows = FlowStage(tmp_path).flows("owner")
    await begun(flows, tmp_path)
    shutil.rmtree(tmp_path / "record")
    (tmp_path / "record").mkdir()
    assert not (await flows.delete("f", record="remove")).is_record_left


@pytest.mark.parametrize("record", [".", "..", "both", "both/inner", "link"])
async def test_shared_folder_is_not_removed(tmp_path: Path, record: str) -> None:
    root = tmp_path / "work"
    (root / "there").mkdir(parents=True)
    (root / "link").symlink_to(root / "there")
    flows = FlowStage(root).flows("owner")
    await begun(flows, root, record=record)
    (root / "both" / ".flow").unlink(missing_ok=True)  # as if removed on purpose
    await begun(flows, root, "g", "both")
    with pytest.raises(FlowRefusal, match="cannot be removed"):
        await flows.delete("f", record="remove")
    assert (root / record / "workflow.yaml").exists()
    assert (await flows.state("f")).run.status == "running"


async def test_flow_can_be_deleted_after_its_process_died(
    tmp_path: Path,
) -> None:
    stage = FlowStage(tmp_path, HANGING)
    flows = stage.flows("owner")
    flow = await begun(flows, tmp_path)
    running = asyncio.ensure_future(flow.run())

    async def is_at_work() -> bool:
        return bool((await flow.state()).run.running_nodes)

    await until(is_at_work)
    with pytest.raises(FlowRefusal, match=r"owner is at work; Flow\.stop"):
        await flows.delete("f")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert (await flow.state()).run.running_nodes == ("owner-intake",)
    assert (await flows.delete("f")).sessions == ("f__owner",)


async def test_deletion_after_kill_is_completed_by_retry(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, ASKING)
    flows = stage.flows("owner")
    await (await begun(flows, tmp_path)).run()
    await stage.store.erase("f__owner", forks="keep", by="ana")
    await flows.delete("f")
    with pytest.raises(FlowNotFound):
        await flows.state("f")
