"""Creates chats from a session and the agent in force in the session."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

import msgspec

from perdure.client.agents.agent import Agent, agent_of
from perdure.client.agents.chat import Chat
from perdure.client.agents.chat_workspace import ChatWorkspace
from perdure.client.agents.delegation.restriction import missing_version, resumed_agent
from perdure.client.agents.runtime_services import Host
from perdure.client.agents.turn import Turn
from perdure.client.conversation.agent_binding import Binding, tool_names
from perdure.client.conversation.workspace import Workspace, kept_workspace
from perdure.client.session import Session
from perdure.engine.turns.config import Budget
from perdure.engine.turns.session_turns import SessionTurns
from perdure.session.ids import StreamId
from perdure.session.notes import SessionStarted
from perdure.tools.registry import ToolRegistry

_log = logging.getLogger(__name__)


class Chats:
    """Creates the chats of one runtime; `running` contains the runtime's running turns."""

    def __init__(self, host: Host, running: set[Turn]) -> None:
        self._host = host
        self._running = running
        self._told: set[str] = set()

    async def resume_chat(
        self,
        handle: Session,
        bound: Binding,
        given: Agent | None,
        narrowed: Callable[[Agent], Agent],
    ) -> Chat:
        """Return a chat of the session `handle` with its agent in `bound`.

        The chat's agent is restricted by `given` and by `narrowed`. If `given` is None, the
        runtime's agent with the same id is used in its place. Raises: ConfigError; McpUnavailable.
        """
        snapshot = bound.agent or {}
        name = str(snapshot.get("id", ""))
        today = given or self._host.agents.get(name)
        workspace = kept_workspace(bound.workspace)
        frozen = today or agent_of(snapshot, ToolRegistry(()))
        whole = await self._host.servers.equip(frozen, workspace.working_dir, tool_names(snapshot))
        kept = agent_of(snapshot, whole.registry)
        self._warn(handle.id, _changes_text(snapshot, today, whole.registry))
        if whole.registry.names:
            self._warn(handle.id, _folder_text(workspace.working_dir))
        agent = narrowed(kept if today is None else _as_of_today(resumed_agent(kept, whole), today))
        is_child = isinstance(bound, SessionStarted) and bound.invoked_by is not None
        # A child has the rest of its parent's budget, whichever program resumes it.
        budget = agent.budget if is_child else None
        return await self.chat(
            handle, agent, workspace, bound.system_prompt, caps=today, budget=budget
        )

    def _warn(self, session: str, text: str) -> None:
        """Log each `text` only once, because it can apply to many sessions."""
        if text and text not in self._told:
            self._told.add(text)
            _log.warning("session %s: %s", session, text)

    async def chat(
        self,
        session: Session,
        agent: Agent,
        workspace: Workspace,
        prompt: str | None,
        *,
        caps: Agent | None = None,
        budget: Budget | None = None,
    ) -> Chat:
        """Return a chat of `agent`; its limits come from the agent `caps`, or else from `agent`.

        If `budget` is given, it replaces the budget of the limiting agent.

        Logs a warning if the budget cannot be enforced.
        """

        def staged(place: Workspace, prompt: str | None) -> SessionTurns:
            id = StreamId(session.id)
            return self._host.running(id, agent, place, prompt=prompt, caps=caps, budget=budget)

        own_place = msgspec.structs.replace(workspace, scope=agent.permissions.scope)
        running = staged(own_place, prompt)
        limits = budget or self._host.budget_of(caps or agent)
        warning = await self._host.unpriced_warning(agent, limits)
        if warning is not None:
            _log.warning("session %s: %s; give Runtime(prices=...) one", session.id, warning)
        handle = session if agent.hooks is None else session.asking(agent.hooks)
        order = self._host.call_order(session.id)
        place = ChatWorkspace(workspace, agent, running, staged, session.head)
        host, turns = self._host, self._running
        return Chat(handle, agent, place, running, turns, host=host, order=order)


def _changes_text(snapshot: Mapping[str, object], today: Agent | None, tools: ToolRegistry) -> str:
    """Return a text on how the agent in `snapshot` differs from its version in this runtime.

    Returns "" if the agent does not differ.
    """
    name, names = snapshot.get("id"), tool_names(snapshot)
    if today is None:
        lost = f"this runtime has no agent {name!r}, so {', '.join(names)} cannot be called"
        return lost if names else ""
    missing = missing_version(snapshot, today, tools)
    return f"agent {name!r} has changed since it began: it {missing}" if missing else ""


def _folder_text(folder: str) -> str:
    if os.path.isdir(folder):  # noqa: PTH112 - one that cannot be read is none
        return ""
    return f"its folder {folder!r} does not exist: resume it with a workspace to move it"


def _as_of_today(agent: Agent, today: Agent) -> Agent:
    """Return `agent` with the timeouts of its current version `today`.

    Sessions do not store timeouts.
    """
    return msgspec.structs.replace(
        agent,
        first_byte_timeout_s=today.first_byte_timeout_s,
        stream_idle_timeout_s=today.stream_idle_timeout_s,
    )
