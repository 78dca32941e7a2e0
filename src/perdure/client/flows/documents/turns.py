"""Run the agents of a document's flow; each conversation of the document has one session.

The flow's log contains the definition of each agent. The program provides the functions of the
agents' tools. The prompt of a node is computed from the log and files when the node's turn begins.
The first commit of the turn stores the prompt in the node's session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec

from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.delegation.restriction import resumed_agent, within
from perdure.client.agents.turn_config import InFlow
from perdure.client.conversation.agent_binding import tool_names
from perdure.client.conversation.workspace import Workspace, in_folder
from perdure.client.flows.consent import consent_judge
from perdure.client.flows.documents.start import file_reader
from perdure.client.flows.role_turns import MOST_TURNS, RoleTurns, session_of
from perdure.engine.flows.documents.document_flow import node_of, workflow_of
from perdure.engine.flows.documents.prompts import nodes_named, task_message
from perdure.engine.flows.documents.turn_end import digest_of
from perdure.engine.flows.lost_roles import require_there
from perdure.engine.flows.rules.ready_nodes import Work, runnable
from perdure.engine.turns.session_turns import SessionTurns
from perdure.session.flows.graph import base_role
from perdure.session.flows.kinds import DocumentBound
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.tools.builtin.catalogue import BUILTIN
from perdure.tools.permissions import Permissions
from perdure.tools.registry import ToolRegistry
from perdure.workflow.document import AgentNode, Workflow


class DocumentTurns(RoleTurns):
    """Implements ``Roles`` (`engine.flows.roles`) for the conversations of a document."""

    _known: Workflow | None = None

    async def session(self, state: FlowState, role: str) -> StreamId:
        """See ``Roles``."""
        id = session_of(state, role)
        if role in state.sessions:
            await require_there(self._store, id)
            return id
        folder = state.run.workspace_root
        place = in_folder(Workspace(variables=_document(state).context), folder)
        agent = await self._equipped(role, place)
        await self._create(state, role, agent, place, agent.system_prompt(place))
        return id

    async def entry_message(self, state: FlowState, work: Work) -> str:
        """See ``Roles``.

        Return the first message for a node; a person's reply is sent unchanged.
        """
        if work.text is not None:
            return work.text
        document, graph = _document(state), state.graph
        node = node_of(self._workflow(state), work.node.id)
        assert isinstance(node, AgentNode)
        digests = {name: digest_of(state, name) for name in nodes_named(node, graph)}
        answers = {
            name: (await self._store.blob(digest)).decode(errors="replace")
            for name, digest in digests.items()
            if digest is not None and name not in document.passive
        }
        return await asyncio.to_thread(
            task_message,
            document,
            graph,
            node,
            answers,
            run_id=state.run.flow_id,
            read_file=file_reader(Path(state.run.workspace_root)),
        )

    async def _running(self, session: StreamId) -> SessionTurns:
        """Return the object that runs turns of `session`, with the tools of its current node."""
        state = await self._journal.state()
        role = session.rpartition("__")[2]
        agent, place, prompt = await self._as_begun(session, role, state)
        wanted = _tools_at(self._workflow(state), state, role)
        if wanted:
            left = [name for name in agent.registry.names if name in wanted]
            agent = agent.with_tools(agent.registry.restrict(left).tools)
        judge = consent_judge(agent.tools_in(place), agent.permissions, self._consent)
        flow = InFlow(judge, self._record.folder)
        return self._host.running(session, agent, place, prompt=prompt, flow=flow)

    def _workflow(self, state: FlowState) -> Workflow:
        """Return the workflow of the flow; it never changes after the start."""
        if self._known is None:
            self._known = workflow_of(_document(state))
        return self._known

    def _agent(self, role: str) -> Agent:
        """Return the agent of a conversation from the flow's log.

        Raises: ConfigError when this version cannot read the log.
        """
        known = self._journal.latest
        ref = base_role(role)
        snapshot = {} if known is None else _document(known).agents.get(ref, {})
        there = self._host.agents.get(ref)
        agent = agent_of(snapshot, _registry(snapshot) if there is None else there.registry)
        if there is not None:
            agent = resumed_agent(agent, there)
        elif known is None or known.is_foreign:
            allowed = within(agent.permissions, Permissions())
            agent = msgspec.structs.replace(agent, permissions=allowed)
        own = {} if there is None else {"mcp_servers": there.mcp_servers, "hooks": there.hooks}
        is_default = agent.on_interrupt == "retry"
        return msgspec.structs.replace(
            agent,
            on_interrupt=self._equipment.on_interrupt if is_default else agent.on_interrupt,
            limits=msgspec.structs.replace(agent.limits, max_turns=MOST_TURNS),
            **own,
        )


def _document(state: FlowState) -> DocumentBound:
    assert state.document is not None
    return state.document


def _registry(snapshot: Mapping[str, object]) -> ToolRegistry:
    """Return the built-in tools of the agent of `snapshot`."""
    names = tool_names(snapshot)
    return ToolRegistry(tuple(BUILTIN[name] for name in names if name in BUILTIN))


def _tools_at(workflow: Workflow, state: FlowState, role: str) -> tuple[str, ...]:
    """Return the tools of the node that `role` runs or runs next; () means all tools."""
    nodes = [state.graph.node(id) for id in state.run.running_nodes]
    nodes += [work.node for work in runnable(state)]
    at_work = next((node.id for node in nodes if node is not None and node.role == role), None)
    node = None if at_work is None else node_of(workflow, at_work)
    return node.tools if isinstance(node, AgentNode) else ()
