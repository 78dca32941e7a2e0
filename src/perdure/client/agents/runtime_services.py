"""The services that the sessions of a runtime share: store, models, agents, prices, limits, keys.

Sessions without a chat, such as those of a flow's roles, also use the services of the runtime.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

import msgspec

from perdure.bounds.callbacks import run_callback
from perdure.client.agents.agent import Agent
from perdure.client.agents.delegation.invocation import AgentInvoker, with_agent_list
from perdure.client.agents.extraction import Extraction, ExtractionModels
from perdure.client.agents.notices import OnQuestion, QuestionCalls, unpriced_warning
from perdure.client.agents.providers import default_models
from perdure.client.agents.runners import EmbeddedRunner, Runner
from perdure.client.agents.turn_config import Caps, InFlow, terms_of
from perdure.client.conversation.call_order import CallOrder
from perdure.client.conversation.scratch import scratch_dir_of
from perdure.client.conversation.workspace import Workspace
from perdure.client.memory.backlog import Backlog
from perdure.client.processes import is_gone, named_process
from perdure.client.store import Store
from perdure.engine.hooks.registry import Hooks, checked_callback
from perdure.engine.hooks.wrappers import HookedModels
from perdure.engine.telemetry.activation import chosen_observer, told_models
from perdure.engine.turns.config import Budget, Limits
from perdure.engine.turns.environment import (
    LEASE_TTL_MS,
    Cooldowns,
    Environment,
    PersonWaits,
    RenewCredentials,
    Scales,
)
from perdure.engine.turns.lease import Claim
from perdure.engine.turns.observer import Observer
from perdure.engine.turns.session_turns import SessionTurns
from perdure.errors import AgentNotFound, ConfigError, InvalidTransition
from perdure.models.prices import CostCalculator, Price
from perdure.models.protocol import ModelClient
from perdure.models.router import ModelRouter
from perdure.secrets.vault import Vault
from perdure.session.ids import StreamId
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permission_check import judge_of

if TYPE_CHECKING:
    from perdure.tools.mcp.connection import Connection
    from perdure.tools.mcp.server_tools import Offer


class Host:
    """The services of one runtime. `Runtime` explains the arguments.

    Raises: ConfigError if two agents have the same id; WrongArgument if a callback has a wrong
    signature.
    """

    is_closed = False

    def __init__(  # noqa: PLR0913 - each is an option of its own, and all are named
        self,
        store: Store,
        agents: Iterable[Agent] = (),
        *,
        models: ModelClient | None = None,
        prices: Mapping[str, Price] | None = None,
        limits: Limits | None = None,
        budget: Budget | None = None,
        renew_credentials: RenewCredentials | None = None,
        mcp_servers: Iterable[McpServer] = (),
        has_traced_content: bool | None = None,
        owner: str | None = None,
        lease_ttl_ms: int = LEASE_TTL_MS,
        on_question: OnQuestion | None = None,
        runner: Runner | None = None,
    ) -> None:
        self.store = store
        self.runner = runner or EmbeddedRunner()
        self.is_gone: Callable[[str], bool] = is_gone
        self.paced: Callable[[ModelClient], ModelClient] = lambda models: models
        self.agents = _by_id(agents)
        defaults = default_models(os.environ, store.outside.clock)
        self._own_models = defaults if models is None else None
        self.models: ModelClient = defaults if models is None else models
        self._router = self.models if isinstance(self.models, ModelRouter) else None
        self.prices = prices or {}
        self._cost = CostCalculator(self.prices, self.models)
        self._limits, self._budget = limits or Limits(), budget
        self._renew = checked_callback(renew_credentials, "renew_credentials")
        self.owner = named_process(owner)
        self._lease_ttl_ms, self._has_traced_content = lease_ttl_ms, has_traced_content
        self._scales, self._cooldowns = Scales(), Cooldowns()
        self._asking = QuestionCalls(store, checked_callback(on_question, "on_question"))
        self.person_waits = PersonWaits(self._asking.call)
        self._call_orders: WeakValueDictionary[str, CallOrder] = WeakValueDictionary()
        self._vault = Vault(os.environ)
        self.servers = Servers(mcp_servers, self._vault)
        self.backlog = Backlog(store.backend)
        self.extraction = Extraction(
            store,
            self.claim,
            ExtractionModels(
                self._extraction_client,
                self._cost,
                lambda agent: self.budget_of(agent).max_cost_microcents,
            ),
        )
        for agent in self.agents.values():
            self.extraction.know(agent)

    def agent(self, agent: Agent | str) -> Agent:
        """Return `agent`, or the agent with the id `agent`.

        Raises: AgentNotFound, which lists the known agents.
        """
        if isinstance(agent, Agent):
            return agent
        if agent not in self.agents:
            raise AgentNotFound(agent, tuple(sorted(self.agents)), " in this runtime")
        return self.agents[agent]

    def require_open(self, wanted: str) -> None:
        """Raises: InvalidTransition if the runtime was closed; `wanted` names the call."""
        if self.is_closed:
            raise InvalidTransition("closed", wanted, is_of_runtime=True)

    def require_models(self, agent: Agent) -> None:
        """Raises: ConfigError if the provider of one of the models of `agent` is unknown."""
        if self._router is not None:
            for link in agent.chain:
                self._router.provider_of(link.model)

    def claim(self, stream: StreamId) -> Claim:
        """Return the `Claim` with which this process takes the lease of `stream`."""
        store, clock = self.store.backend, self.store.outside.clock
        return Claim(store, stream, clock, self.owner, self._lease_ttl_ms, self.is_gone)

    def budget_of(self, agent: Agent) -> Budget:
        """Return the budget of a session of `agent`: the runtime's, or else the agent's."""
        return self._budget or agent.budget

    async def unpriced_warning(self, agent: Agent, budget: Budget) -> str | None:
        """Return a warning if `agent` has a limited `budget` and models without a known price."""
        if not budget.max_cost_microcents:
            return None
        if self._own_models is None:
            return unpriced_warning(agent, budget, self._cost)
        # Looking up a price may load the provider's library, which takes seconds.
        return await asyncio.to_thread(unpriced_warning, agent, budget, self._cost)

    def call_order(self, session: str) -> CallOrder:
        """Return the order of the messages to `session`.

        All chats of the session in this runtime share one order.
        """
        return self._call_orders.setdefault(session, CallOrder())

    def _observer(self) -> Observer:
        """Return an observer for the turns of one session."""
        return chosen_observer(
            os.environ,
            self.store.outside.clock,
            has_content=self._has_traced_content,
            namespace=self.store.backend.namespace,
        )

    def running(
        self,
        stream: StreamId,
        agent: Agent,
        workspace: Workspace,
        *,
        prompt: str | None,
        caps: Agent | None = None,
        flow: InFlow | None = None,
        budget: Budget | None = None,
        invoked_by: tuple[StreamId, ...] = (),
    ) -> SessionTurns:
        """Return the object that runs the session's turns with the limits of `caps`."""
        caps, tools = caps or agent, with_agent_list(agent.tools_in(workspace), self.agents)
        clock, terms = self.store.outside.clock, flow or InFlow(judge_of(tools, agent.permissions))
        limits, budget = self._limits.over(caps.limits), budget or self.budget_of(caps)
        invoker = AgentInvoker(self, stream, agent, workspace, budget=budget, invoked_by=invoked_by)
        observer, hooks = self._observer(), Hooks(self.store.hooks, agent.hooks)
        environment = Environment(
            stream=stream,
            store=self.store.backend,
            models=HookedModels(self.paced(told_models(self.models, observer)), hooks, stream),
            tools=tools,
            clock=clock,
            random=self.store.outside.random,
            bus=self.store.bus,
            owner=self.owner,
            working_dir=Path(workspace.working_dir),
            scales=self._scales,
            lease_ttl_ms=self._lease_ttl_ms,
            is_gone=self.is_gone,
            cooldowns=self._cooldowns,
            renew_credentials=None if self._renew is None else self._renewed,
            router=self._router,
            permissions=agent.permissions,
            vault=self._vault,
            observer=observer,
            delegation=invoker,
            invoked_by=invoked_by,
            person_waits=self.person_waits,
            scratch_dir=scratch_dir_of(self.store.backend, stream),
            record=terms.record,
            frame_of=terms.frame_of,
            silence=agent.silence,
            on_session_end=self.extraction.wake,
            on_embedder=self.backlog.wake,
            hooks=hooks,
        )
        today = Caps(limits, budget, self._cost, terms.judge, flow is not None)
        return SessionTurns(environment, terms_of(agent, environment, prompt, today))

    async def aclose(self) -> None:
        """Stop background work, close the model clients created here, and stop the MCP servers."""
        await self.extraction.stop()
        await self.backlog.stop()
        await self._asking.aclose()
        await self.servers.aclose()
        if self._own_models is not None:
            await self._own_models.aclose()

    def _extraction_client(self, agent: Agent, session: StreamId) -> ModelClient:
        """Return the model client for the extractor of `agent`, with the agent's hooks."""
        return HookedModels(self.paced(self.models), Hooks(self.store.hooks, agent.hooks), session)

    async def _renewed(self, provider: str) -> bool:
        assert self._renew is not None
        is_renewed = await run_callback(self._renew, provider)
        if is_renewed is True and self._router is not None:
            await self._router.renew(provider)
        return is_renewed


def _by_id(agents: Iterable[Agent]) -> dict[str, Agent]:
    found: dict[str, Agent] = {}
    for agent in agents:
        if agent.id in found:
            raise ConfigError(f"two agents have the id {agent.id!r}; give one another id")
        found[agent.id] = agent
    return found


_log = logging.getLogger(__name__)

_CONNECTION = "perdure.tools.mcp.connection"
_OFFERED = "perdure.tools.mcp.server_tools"


class Servers:
    """Connects a runtime to MCP servers.

    Agents can use the servers in `known`. The servers get their secrets from `vault`. Raises:
    ConfigError if two servers have the same name.
    """

    def __init__(self, known: Iterable[McpServer], vault: Vault) -> None:
        self._known: dict[str, McpServer] = {}
        for server in known:
            if server.name in self._known:
                raise ConfigError(f"two MCP servers have the name {server.name!r}")
            self._known[server.name] = server
        self._vault = vault
        self._connections: dict[bytes, Connection] = {}
        self._offers: dict[str, list[Offer]] = {}

    async def equip(
        self, agent: Agent, working_dir: str, wanted: Collection[str] | None = None
    ) -> Agent:
        """Return `agent` with the tools of its MCP servers after its own tools.

        `wanted` are the names of the tools to use (None: all); a server that has none of these
        tools is not connected. The log names the offered tools that `agent` does not get.
        Raises: McpUnavailable if a server does not start; ConfigError if a server is unknown.
        """
        tools = agent.registry.tools
        offers: list[Offer] = []
        for server in self._of(agent):
            is_used = wanted is None or any(name.startswith(server.prefix) for name in wanted)
            if not is_used:
                continue
            connection = self._connection(server, Path(working_dir))
            offer_tools = importlib.import_module(_OFFERED).offer_tools
            offer = cast("Offer", await offer_tools(connection, [spec.name for spec in tools]))
            for left in offer.left_out:
                told = (server.name, left.tool, left.reason)
                _log.warning("MCP server %s: the tool %s is left out: %s", *told)
            tools = (*tools, *offer.tools)
            offers.append(offer)
        self._offers[agent.id] = offers
        return agent.with_tools(tools) if offers else agent

    def names_of(self, agent: Agent) -> list[str]:
        """Return the names of the servers of `agent`. Raises: ConfigError for an unknown server."""
        return [server.name for server in self._of(agent)]

    def report(self, agent: Agent) -> list[dict[str, object]]:
        """Return, as plain data, the tools that each MCP server of `agent` offered last."""
        return [
            {
                "name": offer.server,
                "tools": [spec.name for spec in offer.tools],
                "left_out": msgspec.to_builtins(offer.left_out),
            }
            for offer in self._offers.get(agent.id, ())
        ]

    async def aclose(self) -> None:
        """Stop every started server, and close every connection."""
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.close()

    def _of(self, agent: Agent) -> Iterator[McpServer]:
        used: set[str] = set()
        for each in agent.mcp_servers:
            server = each if isinstance(each, McpServer) else self._known.get(each)
            if server is None:
                known = ", ".join(sorted(self._known)) or "none"
                raise ConfigError(f"there is no MCP server {each!r} here; there are: {known}")
            if server.name in used:
                raise ConfigError(f"agent {agent.id!r} has two MCP servers named {server.name!r}")
            used.add(server.name)
            yield server

    def _connection(self, server: McpServer, working_dir: Path) -> Connection:
        place = "" if server.is_remote else str(server.working_dir or working_dir)
        key = msgspec.json.encode((server, place))
        if key not in self._connections:
            make = importlib.import_module(_CONNECTION).Connection
            self._connections[key] = make(server, self._vault, working_dir)
        return self._connections[key]
