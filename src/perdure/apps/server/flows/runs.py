"""The runs of flows in a server: a flow has at most one run, which continues after every answer."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path

import msgspec

from perdure.apps.flow.init import initialization, scaffold
from perdure.apps.server.flows.inputs import NewFlow
from perdure.apps.server.problems import Problem
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import STANDARD, Flows
from perdure.client.store import Store
from perdure.errors import ConfigError, FlowRefusal, PerdureError
from perdure.session.flows.graph import Graph
from perdure.session.flows.run import FeedbackContext
from perdure.session.ids import StreamId

_log = logging.getLogger(__name__)


class FlowRuns:
    """The flows of `runtime`, and the runs of these flows in this process.

    For a role without an agent of its own, the server's first agent works under the role's name.
    Flows can be started only in the folders `projects` and below them.
    """

    def __init__(self, runtime: Runtime, projects: Sequence[str | PathLike[str]] = ()) -> None:
        self.projects = tuple(Path(os.path.realpath(each)) for each in projects)
        self._runtime = runtime
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._errors: dict[str, str] = {}

    @cached_property
    def flows(self) -> Flows:
        """The flows of the store."""
        return Flows(self._runtime, default_agent=self._agent_for)

    def _agent_for(self, role: str) -> Agent:
        agents = self._runtime.host.agents
        if not agents:
            raise ConfigError("this server has no agent; a role needs one")
        return msgspec.structs.replace(next(iter(agents.values())), id=role)

    @property
    def store(self) -> Store:
        """The store of the flows."""
        return self._runtime.host.store

    def project(self, place: str | Path) -> Path:
        """Return the real path of `place`, if it is in a project of this server. This call blocks.

        Raises: Problem 403 if `place` is in no project.
        """
        found = Path(os.path.realpath(place))
        if any(found.is_relative_to(each) for each in self.projects):
            return found
        allowed = ", ".join(str(each) for each in self.projects) or "none"
        detail = f"{str(place)!r} is in no project of this server; it has: {allowed}"
        raise Problem(403, "folder_refused", detail)

    async def start(self, new: NewFlow) -> Flow:
        """Create the flow `new`, in a project of this server.

        After this call, the flow exists but does not run yet.
        Durable: the change is stored when this call returns. Raises: Problem 403 if a folder of
        `new` is in no project of this server; the errors of `Flows.start`.
        """
        workspace = await asyncio.to_thread(self.project, new.workspace)
        workflow: Graph | Path = await asyncio.to_thread(self.project, workspace / new.workflow)
        if new.record_folder is not None:
            await asyncio.to_thread(self.project, workspace / new.record_folder)
        feedback = STANDARD
        if new.mode == "update":
            feedback = FeedbackContext("update", None, new.from_version, new.to_version)
        elif new.mode != "workflow":
            await asyncio.to_thread(scaffold, workspace)
            workflow = initialization(new.mode)
            feedback = FeedbackContext("initialization", new.mode)
        return await self.flows.start(
            workflow,
            workspace=workspace,
            id=new.id,
            record_folder=new.record_folder,
            consent=new.consent,
            configuring=new.configuring,
            feedback=feedback,
        )

    def window(self, model: str | None) -> int | None:
        """Return the context window of `model` in tokens; None if unknown."""
        if model is None:
            return None
        try:
            return self._runtime.host.models.info(model).context_window
        except PerdureError:  # the server has no provider for it
            return None

    async def works(self, flow: Flow) -> bool:
        """Return whether the flow runs in this server, or a role of it runs in another process."""
        return flow.id in self._tasks or bool(await flow.workers())

    def error(self, flow: str) -> str | None:
        """Return the error of the flow's last run in this server; None if the run did not fail."""
        return self._errors.get(flow)

    async def ensure(self, id: str) -> Flow:
        """Run the flow `id` until it is completed, unless it already runs in this server.

        Raises: FlowNotFound if no flow has this id; FlowRefusal if the flow's folder is not on this
        machine.
        """
        flow = await self.flows.open(id)
        is_open = (await flow.state()).run.status != "completed"
        if is_open and id not in self._tasks:  # nothing awaits from here to the new task
            self._errors.pop(id, None)
            self._tasks[id] = asyncio.create_task(self._run(flow))
        return flow

    async def go_on(self, id: str) -> None:
        """Run the flow `id` here if no process runs it.

        If running the flow fails, the reason becomes the `error` of the flow.
        """
        try:
            if not await self.flows.look(StreamId(id)).workers():
                await self.ensure(id)
        except FlowRefusal as error:
            self._errors[id] = str(error)

    async def flow_of(self, session: str) -> str | None:
        """Return the flow whose role works in `session`; None if no role works in `session`."""
        header = (await self.store.backend.state(StreamId(session))).header
        return header.parent if header.origin == "role" else None

    async def _run(self, flow: Flow) -> None:
        try:
            await flow.run(until_completed=True)
        except Exception as error:  # noqa: BLE001 - the console shows it, whatever it is
            _log.exception("flow %s stopped", flow.id)
            self._errors[flow.id] = str(error)
        finally:
            self._tasks.pop(flow.id, None)

    async def stop(self, flow: str) -> None:
        """Suspend the run of a flow in this server."""
        task = self._tasks.get(flow)
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def close(self) -> None:
        """Suspend all runs; the next process that opens the flows can continue them."""
        for flow in [*self._tasks]:
            await self.stop(flow)
        if "flows" in self.__dict__:
            await self.flows.close()
