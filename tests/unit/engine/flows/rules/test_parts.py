from __future__ import annotations

from msgspec.structs import replace

from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE, RoleWork, order_in_parallel
from perdure.engine.flows.rules.node_end import Ended
from perdure.engine.flows.rules.parts import NodePart, ReflectionPart
from perdure.engine.flows.rules.ready_nodes import runnable
from perdure.session.flows.kinds import (
    ForwardPassClosed,
    HandoffMade,
    HandoffTarget,
    ImprovementChosen,
    ImprovementClaimed,
    NodeClaimed,
    RepairAsked,
)
from tests.fakes.flow_log import FLOW, FlowLog, graph

LINE = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "end": "owner"})


def node_part(log: FlowLog) -> NodePart:
    (work,) = runnable(log.state)
    return NodePart(work.node.role, work.node.id, FLOW, work)


def looking_back() -> FlowLog:
    log = FlowLog(LINE).work("owner-intake", "a").work("a", "end").claim("end", "a=>end")
    order = order_in_parallel(LINE)
    return log.add(ForwardPassClosed("end"), ImprovementChosen("parallel", "me", "i.yaml", order))


def test_node_that_another_process_started_meanwhile_is_not_started_again() -> None:
    log = FlowLog(LINE).work("owner-intake", "a")
    part = node_part(log)
    assert part.claim(log.state) == NodeClaimed("a", "a", FLOW, "handoff", ("owner-intake=>a",))
    (work,) = runnable(log.state)
    assert work.paths(log.state) == log.run.receiving_handoff["owner-intake=>a"]
    assert part.claim(log.claim("a", "owner-intake=>a").state) is None
    assert NodePart("a", "a", FLOW).claim(log.state) is None


def test_node_that_received_new_input_meanwhile_is_not_started() -> None:
    log = FlowLog(LINE).work("owner-intake", "a")
    (work,) = runnable(log.state)
    part = replace(node_part(log), told=work.paths(log.state))
    assert part.claim(log.state) is not None
    more = HandoffTarget("a", "more.md")
    assert part.claim(log.add(HandoffMade("owner-intake", (more,))).state) is None


def test_repair_request_is_open_only_while_its_node_runs() -> None:
    log = FlowLog(LINE)
    part = node_part(log)
    repair = RepairAsked("owner-intake", "owner", "missing_block", "none", "write one", 1)
    assert part.repair(log.claim("owner-intake").state) is None
    assert part.repair(log.add(repair).state) == repair
    assert part.repair(log.hand("owner-intake", "a").state) is None


def test_artifact_names_are_read_from_an_answer() -> None:
    log = FlowLog(LINE)
    said = Ended("stop", "```handoff\ntarget_node_id: a\nartifact_path: x.md\n```")
    assert node_part(log).names(log.state, said) == ("x.md",)
    assert not node_part(log).is_closing(log.state)
    assert NodePart("owner", "end", FLOW).is_closing(log.state)


def test_role_review_is_not_started_again_by_a_second_process() -> None:
    log = looking_back()
    part = ReflectionPart("a", FLOW, RoleWork("a"))
    assert part.claim(log.state) == ImprovementClaimed("a", FLOW)
    assert part.names(log.state, Ended("stop")) == ("findings/a-findings.md",)
    assert (part.folder, part.is_closing(log.state)) == ("record", False)
    log.add(ImprovementClaimed("a", FLOW))
    assert part.claim(log.state) is None
    repair = RepairAsked("a", "a", "missing_block", "none", "write one", 1)
    assert part.repair(log.state) is None
    assert part.repair(log.add(repair).state) == repair


def test_review_of_the_owner_role_ends_the_flow() -> None:
    assert ReflectionPart(FEEDBACK_ROLE, FLOW).folder == "workspace"
    assert ReflectionPart("owner", FLOW).is_closing(looking_back().state)
