from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perdure.engine.flows.answer_text import AnswerText
from perdure.engine.flows.files.graph_file import WORKFLOW, GraphFile
from perdure.engine.flows.files.workflow_text import workflow_text
from perdure.engine.flows.node_turn import NodeClaimLost, NodeTurn
from perdure.engine.flows.rules.improvement import order_in_parallel
from perdure.engine.flows.rules.parts import NodePart, ReflectionPart
from perdure.engine.flows.rules.ready_nodes import runnable
from perdure.session.codec import new_side, new_tree
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import (
    ForwardPassClosed,
    HandoffMade,
    ImprovementChosen,
    ImprovementClaimed,
    NodeClaimed,
    RepairAsked,
    RoleConfigured,
    WorkflowChanged,
)
from perdure.session.ledger import ModelCalled, TurnFinished, TurnStarted
from perdure.session.messages import Message, TextPart, assistant, user
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph
from tests.fakes.scripted_roles import begun, hand

LINE = graph("owner-intake>end", **{"owner-intake": "owner", "end": "owner"})
GROWN = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "end": "owner"})
STARTED = (new_side(TurnStarted(1, "owner")), new_tree(user("go")))
FINISHED = new_side(TurnFinished("stop"))


class Place:
    """A flow in a store, and the turn of its first node."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock, random=SeededRandom(1))

    async def turn(self, folder: Path, graph: Graph = LINE) -> NodeTurn:
        self.ground = await begun(self.store, self.clock, graph, folder)
        (work,) = runnable(await self.ground.journal.state())

        async def last() -> AnswerText:
            return AnswerText("what another turn said")

        return NodeTurn(self.ground, NodePart("owner", work.node.id, FLOW, work), last)

    def taken_up(self, said: AnswerText) -> NodeTurn:
        """Return the same turn in another process, which finds the answer `said` in the log."""

        async def last() -> AnswerText:
            return said

        return NodeTurn(self.ground, NodePart("owner", "owner-intake", FLOW), last)

    async def repairing(self) -> NodeTurn:
        """Return the turn with which a process begins a repair that was requested."""

        async def last() -> AnswerText:
            return AnswerText()

        part = NodePart("owner", "owner-intake", FLOW)
        repair = part.repair(await self.ground.journal.state())
        return NodeTurn(self.ground, part, last, repair)

    async def commit(self, writes: tuple[Write, ...]) -> None:
        await self.store.commit(Commit(writes=writes, at=0))

    async def kinds(self) -> list[str]:
        return [entry.kind for entry in await self.store.entries(FLOW)]


def kinds_of(write: Write) -> list[str]:
    return [entry.kind for entry in write.entries]


async def test_model_call_in_a_node_turn_writes_nothing_to_the_flow(
    tmp_path: Path,
) -> None:
    turn = await Place().turn(tmp_path)
    (begin,) = (await turn.beside(STARTED)).writes
    assert kinds_of(begin) == ["node_claimed"]
    assert begin.expected_head == 0
    assert (await turn.beside([new_side(ModelCalled(1, "m"))])).writes == ()


async def test_node_start_is_abandoned_if_another_process_started_the_node_first(
    tmp_path: Path,
) -> None:
    place = Place()
    turn = await place.turn(tmp_path)
    await place.commit((await turn.beside(STARTED)).writes)
    with pytest.raises(NodeClaimLost):
        await turn.beside(STARTED)
    assert await place.kinds() == ["flow_started", "node_claimed"]


async def test_node_start_is_abandoned_after_its_role_was_reconfigured(
    tmp_path: Path,
) -> None:
    place = Place()
    turn = await place.turn(tmp_path)
    await place.ground.journal.append(lambda _: (RoleConfigured("owner", model="a:b"),))
    with pytest.raises(NodeClaimLost):
        await turn.beside(STARTED)


async def test_turn_end_updates_flow_and_stores_artifact(
    tmp_path: Path,
) -> None:
    place = Place()
    turn = await place.turn(tmp_path)
    await place.commit((await turn.beside(STARTED)).writes)
    answer = new_tree(assistant(hand(tmp_path, "end", name="a.md")))
    end = await turn.beside([answer, FINISHED])
    assert kinds_of(end.writes[0]) == ["handoff_made"]
    assert end.blobs == (b"what is in a.md",)


async def test_turn_that_another_process_began_is_evaluated_from_the_log(tmp_path: Path) -> None:
    place = Place()
    turn = await place.turn(tmp_path)
    await place.commit((await turn.beside(STARTED)).writes)
    taken_up = place.taken_up(AnswerText(hand(tmp_path, "end", name="a.md")))
    assert kinds_of((await taken_up.beside([FINISHED])).writes[0]) == ["handoff_made"]


async def test_repair_turn_is_abandoned_if_another_process_did_the_repair(tmp_path: Path) -> None:
    place = Place()
    turn = await place.turn(tmp_path)
    await place.commit((await turn.beside(STARTED)).writes)
    asked = (await turn.beside([new_tree(assistant("I am done.")), FINISHED])).writes
    assert kinds_of(asked[0]) == ["repair_asked"]
    await place.commit(asked)
    first, second = [await place.repairing(), await place.repairing()]
    assert (await first.beside(STARTED)).writes == ()  # it is running already and continues
    answer = new_tree(assistant(hand(tmp_path, "end", name="a.md")))
    await place.commit((await first.beside([answer, FINISHED])).writes)
    with pytest.raises(NodeClaimLost):
        await second.beside(STARTED)


async def test_graph_change_by_the_owner_role_is_committed_with_its_handoff(
    tmp_path: Path,
) -> None:
    place = Place()
    await place.turn(tmp_path)
    claimed = NodeClaimed("owner-intake", "owner", FLOW, "start")
    await place.ground.journal.append(lambda _: (claimed,))
    (tmp_path / WORKFLOW).write_text(workflow_text(GROWN))
    ground = replace(place.ground, drawing=GraphFile(tmp_path, tmp_path))
    answer = hand(tmp_path, "a", name="plan.md")

    async def last() -> AnswerText:
        return AnswerText(answer)

    turn = NodeTurn(ground, NodePart("owner", "owner-intake", FLOW), last)
    (write,) = (await turn.beside((FINISHED,))).writes
    assert kinds_of(write) == [WorkflowChanged.kind, HandoffMade.kind]


async def test_owner_role_cannot_edit_the_graph_in_its_review(
    tmp_path: Path,
) -> None:
    place = Place()
    await place.turn(tmp_path)
    (tmp_path / WORKFLOW).write_text(workflow_text(GROWN))
    drawing = GraphFile(tmp_path, tmp_path)
    bodies = (
        NodeClaimed("owner-intake", "owner", FLOW, "start"),
        ForwardPassClosed("owner-intake"),
        ImprovementChosen("parallel", "me", "i.yaml", order_in_parallel(LINE)),
        ImprovementClaimed("owner", FLOW),
    )
    await place.ground.journal.append(lambda _: bodies)
    ground = replace(place.ground, drawing=drawing)

    async def last() -> AnswerText:
        return AnswerText("done")

    turn = NodeTurn(ground, ReflectionPart("owner", FLOW), last)
    (write,) = (await turn.beside((FINISHED,))).writes
    assert kinds_of(write) == [RepairAsked.kind]


async def test_turn_that_fails_at_its_start_makes_the_node_wait(tmp_path: Path) -> None:
    turn = await Place().turn(tmp_path)
    both = await turn.beside([*STARTED, new_side(TurnFinished("error", error="no turn is left"))])
    assert kinds_of(both.writes[0]) == ["node_claimed", "node_parked"]


async def test_denied_turn_makes_the_node_wait_with_reason_consent_denied(
    tmp_path: Path,
) -> None:
    place = Place()
    turn = await place.turn(tmp_path)
    await place.commit((await turn.beside(STARTED)).writes)
    denied = new_side(TurnFinished("aborted", failure="not_approved", error="ana denied send"))
    (end,) = (await turn.beside([denied])).writes
    assert b'"consent-denied"' in end.entries[0].body
    assert b"ana denied send" in end.entries[0].body


async def test_answer_split_by_a_crash_is_evaluated_as_one_answer(tmp_path: Path) -> None:
    place = Place()
    whole = hand(tmp_path, "end", name="a.md")
    turn = await place.turn(tmp_path)
    await place.commit((await turn.beside(STARTED)).writes)
    taken_up = place.taken_up(AnswerText(whole[:10], is_cut=True))
    again = Message("assistant", (TextPart(whole[10:20]),), stop_reason="aborted")
    for _ in range(2):  # asked again, because it was refused
        await taken_up.beside([new_tree(again), new_side(ModelCalled(2, "m"))])
    taken_up.committed(())
    rest = Message("assistant", (TextPart(whole[20:]),), stop_reason="stop")
    await taken_up.beside([new_tree(rest), FINISHED])
    end = await taken_up.beside([new_tree(rest), FINISHED])
    assert kinds_of(end.writes[0]) == ["handoff_made"]
