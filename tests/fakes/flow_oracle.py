"""The rules of a flow, written independently of the code under test.

The oracle follows a flow's log entry by entry and raises at the first entry that breaks a rule. The
rules: which role can work when; each handoff is delivered once or withdrawn; no artifact is used
twice; each reply of a person is delivered once. The oracle does not use `FlowState`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.session.flows import kinds
from perdure.session.flows.graph import FlowEdge, Graph, edge_key, ends_of
from perdure.session.ids import EntryId

MOST_REPAIRS = 3

UNFORESEEN = re.compile(r"[A-Z]\w*(Error|Exception): ")
"""The reason of a waiting node that an error stopped, if the error is not one of perdure's own."""


class Told(msgspec.Struct, frozen=True):
    """The expected content of a claim's entry message: the work, the files, a person's reply."""

    node: str
    delivered: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()
    text: str | None = None


class FlowOracle:
    """A check of the log of one flow, entry by entry.

    `told` maps each role instance to the expected content of the entry messages of its claims.
    `questions` maps the node that asks to its open question. A question of a role in the
    improvement phase has the role as its key; a question of the flow itself has the key "".
    """

    def __init__(self) -> None:
        self.graph = Graph("", ())
        self.running: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self.queued: dict[str, tuple[str, ...]] = {}
        self.told: dict[str, list[Told]] = {}
        self.questions: dict[str, EntryId] = {}
        self.is_completed = False
        self._handed: set[str] = set()
        self._sent: set[str] = set()
        self._awaiting: set[str] = set()
        self._choosing: dict[str, str] = {}
        """Node that waits until its role is configured -> that role."""
        self._staged: dict[str, tuple[kinds.HandoffTarget, ...]] = {}
        self._replies: dict[str, str] = {}
        self._stopped: set[str] = set()
        self._selecting: set[str] = set()
        """Roles for which a model chooses."""
        self._repairs: dict[str, int] = {}
        self._looking_back: set[str] = set()
        self._looked_back: set[str] = set()
        self._is_closed = False
        self._id = EntryId("")
        """The id of the entry that is processed now."""
        self._rules: Mapping[type, Callable[[Any], None]] = {
            kinds.FlowStarted: self._drawn,
            kinds.WorkflowChanged: self._drawn,
            kinds.NodeClaimed: self._claimed,
            kinds.NodeParked: self._parked,
            kinds.HandoffMade: self._made,
            kinds.HandoffStaged: self._handoff_staged,
            kinds.HandoffDeclined: self._declined,
            kinds.HandoffAwaited: self._awaited,
            kinds.RepairAsked: self._repaired,
            kinds.HumanReplied: self._replied,
            kinds.StopAsked: self._stop_asked,
            kinds.SelectorOpened: self._selector_opened,
            kinds.RoleConfigured: self._configured,
            kinds.ForwardPassClosed: self._closed,
            kinds.ImprovementChosen: self._decided,
            kinds.FeedbackAsked: self._feedback_asked,
            kinds.FeedbackDecided: self._decided,
            kinds.ImprovementClaimed: self._look_back_begun,
            kinds.ImprovementParked: self._look_back_parked,
            kinds.FindingsMade: self._looked,
            kinds.FlowCompleted: self._completed,
        }

    def follow(self, id: EntryId, body: object) -> None:
        """Process the next entry of the log.

        Raises: AssertionError if the entry breaks a rule.
        """
        assert not self.is_completed, f"after its completion: {body}"
        self._id = id
        rule = self._rules.get(type(body))
        if rule is not None:
            rule(body)

    def awaited(self) -> tuple[FlowEdge, ...]:
        """Return the edges along which a node waits for a handoff that has not been made yet."""
        return tuple(
            edge
            for edge in self.graph.edges
            if edge.target in self._awaiting and edge.key not in self._handed
        )

    # ------------------------------------------------------------ nodes

    def _drawn(self, body: kinds.FlowStarted | kinds.WorkflowChanged) -> None:
        assert not self._is_closed, "the work was closed"
        self.graph = body.graph
        for node, role in (self.running | self.waiting).items():
            assert self._role(node) == role, f"{node} is at work, or waits, as {role}"

    def _claimed(self, body: kinds.NodeClaimed) -> None:
        assert not self._is_closed, "the work was closed"
        assert body.node not in self.running, "it is running already"
        assert body.role not in self.running.values(), "its role is at work elsewhere"
        elsewhere = [node for node, role in self.waiting.items() if role == body.role]
        assert set(elsewhere) <= {body.node}, f"its role waits for a person at {elsewhere}"
        assert self._role(body.node) == body.role, "it is another role's"
        delivered = [(key, self._taken(key)) for key in body.delivered]
        taken_back = [(key, self._taken(key)) for key in body.superseded]
        for key in body.delivered:
            self._may_be_delivered(body.node, key)
        for key in body.superseded:
            self._handed.discard(key)
        said = self._replies.pop(body.node, None)
        assert body.text == said, "that is not what the person said, whose words come first"
        if said is not None:
            self._repairs.pop(body.node, None)
        self._may_join(body)
        self.running[body.node] = body.role
        self._awaiting.discard(body.node)
        self._waits_no_more(body.node)
        told = Told(body.node, _paths(delivered), _paths(taken_back), body.text)
        self.told.setdefault(body.role, []).append(told)

    def _taken(self, key: str) -> tuple[str, ...]:
        assert key in self.queued, f"nothing lies along {key}: delivered twice, or never sent"
        return self.queued.pop(key)

    def _may_be_delivered(self, node: str, key: str) -> None:
        source, target = ends_of(key)
        assert target == node, f"{key} is not for it"
        if self.graph.has_edge(source, node):
            asked_back = edge_key(node, source)
            assert asked_back not in self.queued, f"it has asked {source} for better work"
        else:
            stale = edge_key(node, source)
            assert stale not in self.queued, f"{stale} is stale, and was not taken back"

    def _may_join(self, body: kinds.NodeClaimed) -> None:
        node = self.graph.node(body.node)
        if node is None or not node.awaits_all_inputs or body.cause not in ("handoff", "owed"):
            return
        is_asked = any(not self.graph.has_edge(*ends_of(key)) for key in body.delivered)
        sources = self.graph.predecessors(node.id)
        missing = [each for each in sources if edge_key(each, node.id) not in self._handed]
        assert is_asked or not missing, f"it joins, and lacks {missing}"

    def _parked(self, body: kinds.NodeParked) -> None:
        assert not UNFORESEEN.match(body.detail or ""), "something went wrong in its turn"
        self._waits(body.node, body.role)
        if not body.keeps_reply:
            self._replies.pop(body.node, None)
        elif body.reason != "role-configuration":
            self.questions.pop(body.node, None)  # its reply is queued, for a process with its agent
        self._repairs.pop(body.node, None)
        if body.reason == "role-configuration":
            self._selecting.discard(body.role)
            self._choosing[body.node] = body.role

    def _waits(self, node: str, role: str) -> None:
        """Record that the node stopped working and that a person is asked."""
        self._ended(node)
        self._awaiting.discard(node)
        self._choosing.pop(node, None)
        self.waiting[node] = role
        self.questions[node] = self._id

    def _waits_no_more(self, node: str) -> None:
        self.waiting.pop(node, None)
        self.questions.pop(node, None)
        self._choosing.pop(node, None)

    def _ended(self, node: str) -> None:
        self.running.pop(node, None)
        self._stopped -= {node, self._role(node)}

    # ------------------------------------------------------------ handoffs

    def _made(self, body: kinds.HandoffMade) -> None:
        if body.approved_by is None:
            self._may_hand_over(body.node)
        else:
            assert self._staged.pop(body.node) == body.targets, "it was staged otherwise"
            self._waits_no_more(body.node)
        new = {target.artifact for target in body.targets}
        assert not new & self._sent, f"used again: {new & self._sent}"
        self._sent |= new
        for target in body.targets:
            self._sends(body.node, target)
        self._repairs.pop(body.node, None)
        self._ended(body.node)
        self._awaiting.discard(body.node)
        if any(not self.graph.has_edge(body.node, target.node) for target in body.targets):
            self._awaiting.add(body.node)

    def _may_hand_over(self, node: str) -> None:
        assert node in self.running, "it is not at work"
        assert not self._stopped & {node, self._role(node)}, "it was stopped"

    def _sends(self, node: str, target: kinds.HandoffTarget) -> None:
        key = edge_key(node, target.node)
        if self.graph.has_edge(node, target.node):
            self._handed.add(key)
        else:
            answered = edge_key(target.node, node)
            assert self.graph.has_edge(target.node, node), f"{key} is no edge"
            assert answered in self._handed, f"{answered} was not made"
            self._handed.discard(answered)
        self.queued[key] = (*self.queued.get(key, ()), target.artifact)

    def _handoff_staged(self, body: kinds.HandoffStaged) -> None:
        self._may_hand_over(body.node)
        node = self.graph.node(body.node)
        assert node is not None, "it is not in the graph"
        assert node.has_human, "nobody is to approve of what it hands over"
        self._staged[body.node] = body.targets
        self._repairs.pop(body.node, None)
        self._waits(body.node, body.role)

    def _declined(self, body: kinds.HandoffDeclined) -> None:
        del self._staged[body.node]
        self._waits(body.node, body.role)

    def _awaited(self, body: kinds.HandoffAwaited) -> None:
        self._may_hand_over(body.node)
        self._ended(body.node)
        self._repairs.pop(body.node, None)
        self._awaiting.add(body.node)

    def _repaired(self, body: kinds.RepairAsked) -> None:
        is_at_work = body.node in self.running or body.node in self._looking_back
        assert is_at_work, "who is asked for a repair is not at work"
        before = self._repairs.get(body.node, 0)
        assert body.attempt == before + 1 <= MOST_REPAIRS, "too many repairs, or one left out"
        self._repairs[body.node] = body.attempt

    # ------------------------------------------------------------ people

    def _replied(self, body: kinds.HumanReplied) -> None:
        assert body.target not in self._replies, "it was replied to before"
        is_there = body.target in self.questions or body.target in self._awaiting
        assert is_there, "it does not wait"
        assert body.target not in {*self._staged, *self._choosing}, "it waits for something else"
        assert body.text, "there is nothing in it"
        self._replies[body.target] = body.text
        self.questions.pop(body.target, None)

    def _selector_opened(self, body: kinds.SelectorOpened) -> None:
        self._selecting.add(body.role)

    def _configured(self, body: kinds.RoleConfigured) -> None:
        self._selecting.discard(body.role)
        for node in [node for node, role in self._choosing.items() if role == body.role]:
            self.questions.pop(node, None)

    def _decided(self, _: kinds.ImprovementChosen | kinds.FeedbackDecided) -> None:
        del self.questions[""]

    def _feedback_asked(self, _: kinds.FeedbackAsked) -> None:
        left = set(self.graph.roles) - self._looked_back
        assert not self._looking_back | left, f"{self._looking_back | left} have not looked back"
        assert "" not in self.questions, "it was asked before"
        self.questions[""] = self._id

    def _stop_asked(self, body: kinds.StopAsked) -> None:
        known = {*self.running, *self.running.values(), *self._looking_back, *self._selecting}
        assert body.target in known, "it is not at work"
        self._stopped.add(body.target)

    # ------------------------------------------------------------ closing and looking back

    def _closed(self, body: kinds.ForwardPassClosed) -> None:
        self._may_hand_over(body.node)
        self._ended(body.node)
        left = (*self.running, *self.waiting, *self.queued, *self._replies)
        assert not left, f"work is left: {left}"
        missing = [edge.key for edge in self.graph.edges if edge.key not in self._handed]
        assert not missing, f"nothing was handed over along {missing}"
        self._is_closed = True
        self._repairs.clear()
        self.questions[""] = self._id

    def _look_back_begun(self, body: kinds.ImprovementClaimed) -> None:
        assert self._is_closed, "the work is not closed"
        assert body.role not in self._looking_back | self._looked_back, "it looks back, or has"
        said = self._replies.pop(body.role, None) if body.text is not None else None
        assert body.text == said, "that is not what the person said"
        if said is not None:
            self._repairs.pop(body.role, None)
        self._looking_back.add(body.role)
        self.questions.pop(body.role, None)
        self.told.setdefault(body.role, []).append(Told(body.role, text=body.text))

    def _look_back_parked(self, body: kinds.ImprovementParked) -> None:
        assert not UNFORESEEN.match(body.detail or ""), "something went wrong in its turn"
        self._looking_back.discard(body.role)
        self._stopped.discard(body.role)
        self._repairs.pop(body.role, None)
        if body.keeps_reply:
            return
        self._replies.pop(body.role, None)
        self.questions[body.role] = self._id

    def _looked(self, body: kinds.FindingsMade) -> None:
        assert body.role in self._looking_back, "it does not look back"
        assert body.role not in self._stopped, "it was stopped"
        self._looking_back.discard(body.role)
        self._repairs.pop(body.role, None)
        self._looked_back.add(body.role)

    def _completed(self, _: kinds.FlowCompleted) -> None:
        assert self._is_closed, "the work is not closed"
        assert not self._looking_back, f"{self._looking_back} look back"
        assert not self.questions, f"it waits for an answer: {self.questions}"
        self.is_completed = True

    def _role(self, node: str) -> str:
        known = self.graph.node(node)
        return known.role if known is not None else node


def _paths(taken: list[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    return tuple(path for _, paths in taken for path in paths)
