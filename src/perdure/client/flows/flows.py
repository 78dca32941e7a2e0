"""The flows of one store: start, open, list and delete them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self

import msgspec

from perdure.bounds.limits import require_within
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import Outside, absolute
from perdure.client.conversation.role_sessions import require_no_role_id
from perdure.client.flows.deletion import DeletedFlow, delete_flow
from perdure.client.flows.documents.outputs import outputs_of
from perdure.client.flows.documents.start import (
    StartPlan,
    document_in,
    document_text,
    plan_start,
    runnable_agents,
)
from perdure.client.flows.execution import Execution
from perdure.client.flows.flow import Flow
from perdure.client.flows.locations import (
    Begun,
    begun_record,
    default_record,
    place_of,
    require_workspace,
    write_record,
)
from perdure.client.flows.relocation import relocate
from perdure.client.flows.role_setup import Equipment
from perdure.engine.flows.journal import Journal, flows_in
from perdure.errors import (
    ConfigError,
    CorruptLog,
    Erased,
    FlowExists,
    FlowNotFound,
    SessionExists,
    SessionNotFound,
    Unsupported,
)
from perdure.session.argument_checks import takes_all_declared
from perdure.session.codec import new_side
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import (
    Configuring,
    ConsentMode,
    Dimension,
    FlowStarted,
    RoleConfigured,
    RunSettings,
)
from perdure.session.flows.run import FeedbackContext, FlowState, RoleConfiguration
from perdure.session.flows.start_arguments import named_flow_id, require_paths, require_session_ids
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import InterruptPolicy
from perdure.session.notes import SideBody
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore, exists, is_erased
from perdure.tools.paths.project_files import require_writable
from perdure.workflow.document import Workflow
from perdure.workflow.reader import LocatedWorkflow

STANDARD = FeedbackContext("standard")


@takes_all_declared
class Flows:
    """The flows in the store of `runtime`; the agents of `runtime` work as the flows' roles.

    A role instance runs under the agent with its own id (``developer_2``), or under the agent with
    the id of its base role (``developer``). `on_interrupt` applies to the partial answer of a
    process that died, unless the agent sets its own value.
    People and selectors can choose `offered_models` for roles.
    `default_agent` creates the agent of a base role that has none, such as a role added while the
    flow runs. Without `default_agent`, the role's node waits for a person. Leaving the ``async
    with`` block of `Flows` closes it.
    Raises: WrongArgument for an offered model that is not ``provider:name``; ConfigError for an
    offered model whose provider the runtime does not know.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        on_interrupt: InterruptPolicy = "continue",
        offered_models: Iterable[str] = (),
        default_agent: Callable[[str], Agent] | None = None,
    ) -> None:
        self._host = runtime.host
        offered = tuple(offered_models)
        host = runtime.host
        self._equipment = Equipment(host.models, host.agents, on_interrupt, offered, default_agent)
        self._equipment.check_models(offered, "offered_models")
        self._store = host.store
        self._execution = Execution(host, self._equipment)

    def __repr__(self) -> str:
        return f"<Flows agents={sorted(self._host.agents)}>"

    async def start(  # noqa: PLR0913 - each is an option of its own, and all are named
        self,
        workflow: Graph | Workflow | LocatedWorkflow | str | os.PathLike[str],
        *,
        workspace: str | os.PathLike[str] = ".",
        project: str | None = None,
        id: str | None = None,
        record_folder: str | os.PathLike[str] | None = None,
        consent: ConsentMode = "no-access",
        feedback: FeedbackContext = STANDARD,
        inputs: Mapping[str, object] | None = None,
        configuring: Configuring | Mapping[Dimension, Configuring] = "given",
        roles: Mapping[str, RoleConfiguration] | None = None,
        settings: RunSettings | None = None,
    ) -> Flow:
        """Create a flow of `workflow`: a graph, a workflow document, or the path of a file.

        No role runs before you call `Flow.run`. The call creates the record folder, by default
        ``.perdure/records/<flow>`` in `workspace`, with the workflow as ``workflow.yaml``; from
        then on the flow uses that file. `project` (default: the name of the workspace's folder) is
        a folder in the workspace; the roles read its ``a-docs``. A document runs with `inputs`.
        Each agent that a node names is an agent of the runtime, or an agent that the document
        defines. A flow of a document uses the document in the log, so changes of the file have no
        effect. `roles` sets models, skills and tools of role instances. `configuring` applies to
        role instances that are not in `roles`. With `configuring` "given", the settings come from
        the agent and files of the role; with "ask", the role waits for a person if there is a
        choice; with "auto", a model chooses, and after three failures the role waits for a person.
        `configuring` can differ for model and skills, as in ``{"model": "auto", "skills": "ask"}``.
        An omitted key means "given". `settings` is stored in `FlowState.settings`, for the program
        that runs the flow next. Durable: everything is stored on return. Raises: ConfigError for
        missing or invalid readings and inputs, for unknown values in `roles`, and for a record
        folder of another flow. Raises InvalidWorkflow; WrongArgument; SecretPasted; FlowExists if
        `id` is used; Unsupported if the store cannot write two logs in one commit.
        """
        if not self._store.backend.capabilities.multi_stream_commit:
            raise Unsupported("flows", self._store.backend.address.partition(":")[0])
        self._equipment.check_settings(settings)
        flow = await self._new_id(id)
        require_paths(record_folder=record_folder, project=project)
        root = Path(absolute(workspace) or ".")
        folder = Path(absolute(root / (record_folder or default_record(root, flow))) or ".")
        document = await asyncio.to_thread(document_in, workflow)
        begun = Begun(flow, root, folder, project or root.name, consent, settings)
        if document is not None:
            _require_plain(configuring, roles, feedback)
            return await self._of_document(begun, document, inputs or {})
        if inputs:
            raise ConfigError("a workflow of roles takes no inputs; a workflow document does")
        assert not isinstance(workflow, Workflow | LocatedWorkflow)
        return await self._of_roles(begun, workflow, feedback, configuring, roles or {})

    async def _new_id(self, named: str | None) -> StreamId:
        """Return the id of a new flow: the id `named`, or a generated id.

        Raises: FlowExists; WrongArgument.
        """
        if named is None:
            return flow_id(self._store.outside)
        flow = named_flow_id(named)
        await require_no_role_id(self._store.backend, self._store.outside.clock, flow)
        if await exists(self._store.backend, flow):
            raise FlowExists(flow, is_erased=await is_erased(self._store.backend, flow))
        return flow

    async def _of_roles(
        self,
        begun: Begun,
        workflow: Graph | str | os.PathLike[str],
        feedback: FeedbackContext,
        configuring: Configuring | Mapping[Dimension, Configuring],
        roles: Mapping[str, RoleConfiguration],
    ) -> Flow:
        """Create a flow of a workflow of roles."""
        self._equipment.check(roles)
        graph = await asyncio.to_thread(begun_record, begun, workflow, roles)
        of_model, of_skills = _by_dimension(configuring)
        chosen = [
            RoleConfigured(role, each.model, each.skills, each.tools)
            for role, each in roles.items()
        ]
        started = msgspec.structs.replace(
            begun.started(graph, (graph.nodes[0].id,)),
            feedback=feedback.kind,
            initialization_mode=feedback.initialization_mode,
            update_from_version=feedback.update_from_version,
            update_to_version=feedback.update_to_version,
            configuring=of_model,
            skills_configuring=of_skills if of_skills != of_model else None,
        )
        return await self._begin(begun, started, chosen)

    async def _of_document(
        self, begun: Begun, found: LocatedWorkflow, inputs: Mapping[str, object]
    ) -> Flow:
        """Create a flow of a workflow document."""
        made = await asyncio.to_thread(_begun_document, begun, found, self._host.agents, inputs)
        require_session_ids(begun.flow, made.graph.roles)
        started = begun.started(made.graph, made.start)
        return await self._begin(begun, started, (made.document, *made.passed), made.blobs)

    async def _begin(
        self,
        begun: Begun,
        started: FlowStarted,
        besides: Sequence[SideBody],
        blobs: tuple[bytes, ...] = (),
    ) -> Flow:
        """Create the flow: its log has `started`, the flow's settings, and the bodies `besides`."""
        at, title = self._store.outside.clock.now_ms(), started.graph.name
        header = StreamHeader(begun.flow, at, kind="flow", cwd=started.workspace_root, title=title)
        settings = () if begun.settings is None else (begun.settings,)
        entries = tuple(map(new_side, (started, *settings, *besides)))
        write = Write(stream=begun.flow, create=header, entries=entries)
        try:
            await self._store.backend.commit(Commit(writes=(write,), at=at, blobs=blobs))
        except SessionExists as error:
            raise FlowExists(error.stream) from error
        return self._flow(begun.flow)

    async def outputs(self, flow: str) -> dict[str, object]:
        """Return the outputs of a document flow by output node; {} while no output exists.

        Shape: each output is the answer of the previous node, or a mapping from node to answer if
        there are several previous nodes. The answer of an input node is the flow's inputs.
        Raises: FlowNotFound.
        """
        return await outputs_of(self._store.backend, await self.state(flow))

    async def open(
        self,
        flow: str,
        *,
        workspace: str | os.PathLike[str] | None = None,
        settings: RunSettings | None = None,
    ) -> Flow:
        """Return the flow with the complete id `flow`.

        With `workspace` the flow moves to that folder. The record folder keeps its relative path in
        the workspace. If the record folder of an imported flow is missing, its record is written
        below ``.perdure/records``. `settings` replace the stored settings if they differ. Raises:
        FlowNotFound if the flow does not exist. Raises FlowRefusal if the workspace or the record
        folder of the flow is not on this machine, or if its path came with an imported flow. If a
        folder is missing or its path was imported, pass a folder as `workspace`.
        """
        found = await self._require_flow(flow)
        self._equipment.check_settings(settings)
        journal = Journal(self._store.backend, found, self._store.outside.clock)
        if workspace is not None:
            root = Path(absolute(workspace) or ".")
            await relocate(self._store.backend, journal, root)
        place_of(await journal.state())
        if settings is not None:
            await journal.append(lambda state: () if state.settings == settings else (settings,))
        return self._flow(found, journal)

    async def state(self, flow: str) -> FlowState:
        """Return the state of a flow, even if its files are not on this machine.

        Raises: FlowNotFound.
        """
        return await self._flow(await self._require_flow(flow)).state()

    async def delete(
        self, flow: str, *, record: Literal["keep", "remove"] = "keep", by: str | None = None
    ) -> DeletedFlow:
        """Permanently delete a flow and the sessions of its roles and selectors.

        The files in the flow's record folder remain, unless `record` is "remove". Durable:
        everything is deleted on return; after a kill, call `delete` again. Raises: FlowNotFound if
        the flow does not exist; FlowRefusal while a role works, or if the record folder cannot be
        removed. If FlowRefusal is raised, no session is deleted.
        """
        state = await self.state(flow)
        others = await self.list() if record == "remove" else None
        return await delete_flow(self._store, state, by, others)

    def look(self, flow: StreamId) -> Flow:
        """Return the flow `flow` for reads and decisions; its files need not be on this machine."""
        return self._flow(flow)

    async def list(self) -> Sequence[FlowState]:
        """List the states of all flows, newest first."""
        backend = self._store.backend
        ids = await flows_in(backend)
        found = [await _unless_gone(self._flow(flow), backend) for flow in ids]
        return [state for state in found if state is not None]

    async def close(self) -> None:
        """Stop watching the store for changes."""
        await self._execution.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _require_flow(self, flow: str) -> StreamId:
        """Return `flow` as a stream id, after checking that the flow exists.

        Raises: FlowNotFound.
        """
        try:
            state = await self._store.backend.state(StreamId(flow))
        except SessionNotFound:
            raise FlowNotFound(flow) from None
        if state.header.kind != "flow" or state.info.status == "erased":
            raise FlowNotFound(flow)
        return state.header.id

    def _flow(self, flow: StreamId, journal: Journal | None = None) -> Flow:
        journal = journal or Journal(self._store.backend, flow, self._store.outside.clock)
        return Flow(self._store, journal, self._execution)


def _require_plain(
    configuring: Configuring | Mapping[Dimension, Configuring],
    roles: Mapping[str, RoleConfiguration] | None,
    feedback: FeedbackContext,
) -> None:
    """Reject arguments that the workflow document sets itself or does not support.

    Raises: ConfigError.
    """
    if _by_dimension(configuring) != ("given", "given") or roles:
        raise ConfigError("a workflow document says itself what its agents work with")
    if feedback != STANDARD:
        raise ConfigError("a workflow document has no reflection; omit feedback")


async def _unless_gone(flow: Flow, store: SessionStore) -> FlowState | None:
    """Return the state of a flow; None if another process has deleted the flow meanwhile."""
    try:
        return await flow.state()
    except (SessionNotFound, CorruptLog) as error:
        with suppress(SessionNotFound, Erased):
            if (await store.state(StreamId(flow.id))).info.status != "erased":
                raise error from None
        return None


def _begun_document(
    begun: Begun, found: LocatedWorkflow, agents: Mapping[str, Agent], inputs: Mapping[str, object]
) -> StartPlan:
    """Create the record folder; return the start of a flow of the document `found`.

    Blocks the thread.
    """
    workspace = begun.workspace
    require_workspace(workspace)
    name = found.workflow.name or ""
    require_within("name_characters", len(name), f"the name of the workflow, {name!r:.40},")
    bound = runnable_agents(found, agents, workspace)
    made = plan_start(found, bound, workspace=workspace, flow=begun.flow, inputs=inputs)
    require_writable(begun.workspace, begun.record)
    write_record(begun.flow, begun.record, document_text(found))
    made.write_inputs(begun.record)
    return made


def _by_dimension(
    configuring: Configuring | Mapping[Dimension, Configuring],
) -> tuple[Configuring, Configuring]:
    """Return how roles are configured: the value for the model and the value for the skills."""
    if isinstance(configuring, str):
        return configuring, configuring
    return configuring.get("model", "given"), configuring.get("skills", "given")


def flow_id(outside: Outside) -> StreamId:
    """Return a new flow id: the start time in milliseconds and six random digits."""
    at = outside.clock.now_ms()
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return StreamId(f"{moment:%Y%m%dT%H%M%S}{at % 1000:03d}Z-{outside.random(3).hex()}")
