"""``kill -9`` at every commit of a workflow document: the run ends like a run without a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure.client.flows.documents.outputs import outputs_of
from perdure.client.store import Store
from perdure.session.codec import body_of
from perdure.session.flows.kinds import HandoffMade, NodeClaimed, NodePassed
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from tests.crash.children import document
from tests.fakes.forked import forked, preload, run_forked
from tests.fakes.mortal_documents import FLOW, DocumentPlan, begun, finished
from tests.fakes.samples import sampled
from tests.fakes.two_tools import Death, Moment

preload(document.__name__)

COMMITS = 18
"""Number of commits of the whole run; each kill comes before or after one of them."""

DEATHS: list[tuple[Moment, int]] = [
    *[("before_commit", n) for n in range(1, COMMITS + 1)],
    *[("after_commit", n) for n in range(1, COMMITS + 1)],
]


def together_run(plan: DocumentPlan) -> None:
    """Run the flow of `plan` in two concurrent processes, each to its end."""
    with forked(document.run, plan) as one, forked(document.run, plan) as other:
        both = [one.ended(), other.ended()]
    assert [done.code for done in both] == [0, 0], [done.err for done in both]


def died(plan: DocumentPlan, code: int) -> None:
    done = run_forked(document.run, plan)
    assert done.code == code, done.err


async def ended(store: Store, state: FlowState) -> object:
    """Return everything of a run that does not depend on its folder or on timing."""
    bodies = [body_of(entry) for entry in await store.backend.entries(StreamId(FLOW))]
    story = sorted(
        (type(body).__name__, body.node)
        for body in bodies
        if isinstance(body, NodeClaimed | HandoffMade | NodePassed)
    )
    said: dict[str, list[str]] = {}
    for role, stream in sorted(state.sessions.items()):
        assert (await store.backend.state(stream)).open_turn is None
        said[role] = [message.text for message in await (await store.open(stream)).messages()]
    files = files_in(Path(state.run.record_folder_path))
    handed = dict(sorted(state.run.history_handoff.items()))
    outputs = await outputs_of(store.backend, state)
    return state.run.status, outputs, story, said, files, handed, state.digests


def files_in(record: Path) -> dict[str, bytes]:
    files = (path for path in record.rglob("*") if path.is_file())
    return {str(path.relative_to(record)): path.read_bytes() for path in files}


async def uninterrupted(folder: Path) -> object:
    plan = DocumentPlan(folder=str(folder))
    async with perdure.open(plan.address) as store:
        return await ended(store, await finished(plan, store))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Return the end of the run without a kill."""
    return asyncio.run(uninterrupted(tmp_path_factory.mktemp("whole")))


def test_planned_kills_cover_every_commit_of_a_document_run(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    died(DocumentPlan(folder=str(tmp_path), death=Death("after_commit", COMMITS + 1)), 0)
    died(DocumentPlan(folder=str(tmp_path / "one"), death=Death("after_commit", COMMITS)), -9)


@sampled(("moment", "n"), DEATHS, kind=lambda death: death[0], each=3)
async def test_killed_document_run_ends_like_an_undisturbed_run(
    tmp_path: Path, whole: object, moment: Moment, n: int
) -> None:
    plan = DocumentPlan(folder=str(tmp_path), death=Death(moment, n))
    died(plan, -9)
    async with perdure.open(plan.address) as store:
        state = await finished(msgspec.structs.replace(plan, death=Death()), store)
        assert await ended(store, state) == whole
        assert (await store.verify()).is_ok


async def test_two_processes_run_every_node_once(tmp_path: Path, whole: object) -> None:
    plan = DocumentPlan(folder=str(tmp_path))
    async with perdure.open(plan.address) as store:
        await begun(plan, store)
    together_run(plan)
    async with perdure.open(plan.address) as store:
        state = await perdure.Flows(perdure.Runtime(store)).state(FLOW)
        assert await ended(store, state) == whole
