"""The flows of one store: begun from a workflow, found again, listed, run by a runtime."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

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
    write_record,
)
from perdure.client.flows.relocation import relocate
from perdure.client.flows.role_setup import Equipment
from perdure.engine.flows.journal import Journal
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
    FlowImported,
    FlowStarted,
    RoleConfigured,
    RunSettings,
)
from perdure.session.flows.run import FeedbackContext, FlowState, RoleConfiguration
from perdure.session.flows.start_arguments import (
    named_flow_id,
    require_paths,
    require_session_ids,
)
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.ledger import InterruptPolicy
from perdure.session.notes import SideBody
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore, is_erased
from perdure.tools.paths.project_files import require_writable
from perdure.workflow.document import Workflow
from perdure.workflow.reader import LocatedWorkflow

STANDARD = FeedbackContext("standard")


@takes_all_declared
class Flows:
    """The flows of the store of `runtime`, whose agents are their roles.

    A role instance works under the agent whose id is its own (``developer_2``), else its base
    role's (``developer``). `on_interrupt` is what becomes of an answer that its process died in,
    where the agent does not say anything but the default. `offered_models` are those that can be
    chosen for roles. `default_agent` makes the agent of a base role that has none, such as one
    that was added while the flow runs; without it the role's node waits for a person. Ends with its
    ``async with``.
    Raises: WrongArgument for an offered model that is no ``provider:name``; ConfigError for one
    whose provider the runtime does not know.
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
        self._equipment = Equipment(runtime.host.models, runtime.host.agents)
        self._equipment.check_models(offered, "offered_models")
        self._store = runtime.host.store
        self._execution = Execution(runtime.host, on_interrupt, offered, default_agent)

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
        """Create a flow of `workflow`: a graph, a workflow document, or the path of either's file.

        Nothing runs before `Flow.run`. The record folder, by default
        ``.perdure/records/<flow>`` in `workspace`, is made, with the workflow in it as
        ``workflow.yaml``: from then on that file is the flow's. `project` (default: the name of the
        workspace's folder) is the folder of the workspace whose ``a-docs`` the roles read.
        A document is run with `inputs`, by the agents of the runtime that its nodes name, else by
        those it defines; its file is copied, and what counts is what the log has of it.
        `roles` says what role instances work with; with `configuring` "ask" each of the others
        waits until a person says so, where there is something to choose; with "auto" a model
        chooses, and a person where it fails thrice. It can be said by dimension:
        ``{"model": "auto", "skills": "ask"}``, what is left out being "given".
        `settings` is stored for the program that runs the flow next, in `FlowState.settings`.
        Durable: when this returns.
        Raises: InvalidWorkflow; ConfigError for readings and inputs that are missing or cannot be
        used, what there is not in `roles`, and a record folder of another flow; WrongArgument;
        SecretPasted; FlowExists; Unsupported where the store cannot write two logs at once.
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
        """The id of a new flow, `named` or made. Raises: FlowExists; WrongArgument."""
        if named is None:
            return flow_id(self._store.outside)
        flow = named_flow_id(named)
        await require_no_role_id(self._store.backend, self._store.outside.clock, flow)
        if await _is_there(self._store.backend, flow):
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
        """A new flow of a workflow of roles."""
        self._equipment.check(roles)
        place = await asyncio.to_thread(begun_record, begun, workflow, roles)
        of_model, of_skills = _by_dimension(configuring)
        chosen = [
            RoleConfigured(role, each.model, each.skills, each.tools)
            for role, each in roles.items()
        ]
        started = FlowStarted(
            project=place.project,
            workspace_root=str(place.workspace),
            record_folder=str(place.record),
            graph=place.graph,
            start=(place.graph.nodes[0].id,),
            consent=begun.consent,
            feedback=feedback.kind,
            initialization_mode=feedback.initialization_mode,
            update_from_version=feedback.update_from_version,
            update_to_version=feedback.update_to_version,
            configuring=of_model,
            skills_configuring=of_skills if of_skills != of_model else None,
        )
        return await self._begin(begun.flow, started, (*begun.settings_bodies, *chosen))

    async def _of_document(
        self, begun: Begun, found: LocatedWorkflow, inputs: Mapping[str, object]
    ) -> Flow:
        """A new flow of a workflow document."""
        made = await asyncio.to_thread(_begun_document, begun, found, self._host.agents, inputs)
        require_session_ids(begun.flow, made.graph.roles)
        started = FlowStarted(
            begun.project,
            str(begun.workspace),
            str(begun.record),
            made.graph,
            made.start,
            begun.consent,
        )
        besides = (*begun.settings_bodies, made.document, *made.passed)
        return await self._begin(begun.flow, started, besides, made.blobs)

    async def _begin(
        self,
        flow: StreamId,
        started: FlowStarted,
        besides: Sequence[SideBody],
        blobs: tuple[bytes, ...] = (),
    ) -> Flow:
        """The flow whose log begins with `started` and what was decided `besides`."""
        at, title = self._store.outside.clock.now_ms(), started.graph.name
        header = StreamHeader(flow, at, kind="flow", cwd=started.workspace_root, title=title)
        entries = tuple(new_side(body) for body in (started, *besides))
        write = Write(stream=flow, create=header, entries=entries)
        try:
            await self._store.backend.commit(Commit(writes=(write,), at=at, blobs=blobs))
        except SessionExists as error:
            raise FlowExists(error.stream) from error
        return self._flow(flow)

    async def outputs(self, flow: str) -> dict[str, object]:
        """Return the outputs of a document flow by output node; {} before there are any.

        Shape: texts; where several nodes lead to an output, theirs by node.
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
        """Return the flow with the whole id `flow`.

        With `workspace` it works in that folder from now on. Its record folder is at the same place
        in it; if that is missing, the record of an imported flow is written below
        ``.perdure/records``. `settings` are stored if they
        differ from the stored ones.
        Raises: FlowNotFound; FlowRefusal when its workspace or its record folder is
        not on this machine, or came with a received flow: then `workspace` must name one.
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
        """Return the state of a flow, wherever its files are.

        Raises: FlowNotFound.
        """
        return await self._flow(await self._require_flow(flow)).state()

    async def delete(
        self, flow: str, *, record: Literal["keep", "remove"] = "keep", by: str | None = None
    ) -> DeletedFlow:
        """Permanently delete a flow and the sessions of its roles and selectors.

        The files in its record folder stay, unless `record` is "remove".
        Durable: when this returns; after a kill, call it again to delete the rest.
        Raises: FlowNotFound; FlowRefusal while a role is at work, or when the record
        folder cannot be removed: nothing was deleted then.
        """
        state = await self.state(flow)
        others = await self.list() if record == "remove" else None
        return await delete_flow(self._store, state, by, others)

    def look(self, flow: StreamId) -> Flow:
        """The flow of exactly that id, wherever its files are: to be read and decided in."""
        return self._flow(flow)

    async def list(self) -> Sequence[FlowState]:
        """List the states of all flows, newest first."""
        notes = await self._store.backend.notes_of_all((FlowStarted.kind, FlowImported.kind))
        found = [await _unless_gone(self._flow(note.stream), self._store.backend) for note in notes]
        there = [state for state in found if state is not None]
        return sorted(there, key=lambda state: state.run.flow_id, reverse=True)

    async def close(self) -> None:
        """Let go of the store's changes."""
        await self._execution.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _require_flow(self, flow: str) -> StreamId:
        """Return `flow` as the id of an existing flow. Raises: FlowNotFound."""
        try:
            state = await self._store.backend.state(StreamId(flow))
        except SessionNotFound:
            raise FlowNotFound(flow) from None
        if state.header.kind != "flow" or state.info.status == "erased":
            raise FlowNotFound(flow)
        return state.header.id

    def _flow(self, flow: StreamId, journal: Journal | None = None) -> Flow:
        journal = journal or Journal(self._store.backend, flow, self._store.outside.clock)
        return Flow(self._store, journal, self._execution, self._equipment)


def _require_plain(
    configuring: Configuring | Mapping[Dimension, Configuring],
    roles: Mapping[str, RoleConfiguration] | None,
    feedback: FeedbackContext,
) -> None:
    """Refuse what a workflow document says itself, or has not. Raises: ConfigError."""
    if _by_dimension(configuring) != ("given", "given") or roles:
        raise ConfigError("a workflow document says itself what its agents work with")
    if feedback != STANDARD:
        raise ConfigError("a workflow document has no reflection; omit feedback")


async def _unless_gone(flow: Flow, store: SessionStore) -> FlowState | None:
    """Return the state of a flow; None if it was deleted meanwhile."""
    try:
        return await flow.state()
    except (SessionNotFound, CorruptLog) as error:
        with suppress(SessionNotFound, Erased):
            if (await store.state(StreamId(flow.id))).info.status != "erased":
                raise error from None
        return None


async def _is_there(store: SessionStore, stream: StreamId) -> bool:
    try:
        await store.state(stream)
    except (SessionNotFound, Erased):
        return False
    return True


def _begun_document(
    begun: Begun, found: LocatedWorkflow, agents: Mapping[str, Agent], inputs: Mapping[str, object]
) -> StartPlan:
    """How a flow of the workflow document `found` begins, its record folder made. Blocks."""
    workspace = begun.workspace
    if not workspace.is_dir():
        raise ConfigError(f"there is no folder {workspace}; name the flow's workspace")
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
    """Return how models and how skills of roles are chosen: (model, skills)."""
    if isinstance(configuring, str):
        return configuring, configuring
    return configuring.get("model", "given"), configuring.get("skills", "given")


def flow_id(outside: Outside) -> StreamId:
    """A new flow's id: when it began, to the millisecond, and six random digits."""
    at = outside.clock.now_ms()
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return StreamId(f"{moment:%Y%m%dT%H%M%S}{at % 1000:03d}Z-{outside.random(3).hex()}")
