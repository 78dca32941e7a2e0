"""The agents that a flow command uses: one for each role of the flow.

Instances of a role, such as ``owner_2``, use the agent of the base role (``graph.base_role``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.settings.layers import Configuration
from perdure.apps.wiring import builtin_tools, model_choices
from perdure.client.agents.agent import Agent
from perdure.client.store import Store
from perdure.engine.flows.lost_roles import lost_roles
from perdure.engine.flows.rules.answers import choice_in
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE
from perdure.engine.flows.rules.structure import OWNER
from perdure.engine.flows.selection import DIMENSIONS
from perdure.errors import ConfigError, InvalidEntry, WrongArgument
from perdure.models.catalogue import ECHO, require_model_name
from perdure.models.scenario import Scenario
from perdure.session.codec import body_of
from perdure.session.flows.graph import Graph, base_role, is_role
from perdure.session.flows.kinds import Configuring, Dimension
from perdure.session.flows.run import FlowState, RoleConfiguration
from perdure.session.notes import SessionStarted
from perdure.tools.permissions import Permissions

INSTRUCTIONS = """You work with other roles that hand work to each other. You can read, search and \
write files of the workspace and run commands; what you may do without being asked, the person has \
decided. Write what you hand over to a file in the record folder, then hand it over as \
your instructions say. Say what you looked at and what you changed; say so when you do not know."""


class RoleOptions(msgspec.Struct, frozen=True):
    """The roles, the model they use, and the limits of their permissions.

    `offered` lists the models that a person can choose for a role.
    """

    roles: Sequence[str]
    model: str | None = None
    scenario: Scenario | None = None
    permissions: Permissions = Permissions()
    offered: Sequence[str] = ()
    agents: Sequence[Agent] = ()

    @property
    def named_model(self) -> str | None:
        """The model that the command line names for every agent."""
        if self.model is None and self.scenario is not None:
            return f"scripted:{self.scenario.name}"
        return self.model


def roles_of(graph: Graph) -> tuple[str, ...]:
    """Return the base roles of `graph`, including the owner."""
    return tuple(dict.fromkeys((OWNER, *(base_role(role) for role in graph.roles))))


def roles_in(words: Sequence[str]) -> dict[str, RoleConfiguration]:
    """Return the settings of role instances.

    Each of `words` names a role, and chooses its model or skills: ``ROLE model=NAME skills=A,B``.

    Raises: ConfigError.
    """
    found: dict[str, RoleConfiguration] = {}
    for line in words:
        role, _, rest = line.strip().partition(" ")
        if not is_role(role) or role in found:
            raise ConfigError(
                f"--role {line!r} names no role, or one twice; write ROLE model=NAME skills=A,B"
            )
        try:
            choice = choice_in(rest)
            if choice.model is not None:
                require_model_name(choice.model)
        except InvalidEntry as error:
            raise ConfigError(f"--role {line!r}: {error.reason}") from error
        except WrongArgument as error:
            raise ConfigError(f"--role {line!r}: {error}") from error
        found[role] = RoleConfiguration(choice.model, choice.skills)
    return found


_DIMENSIONS: dict[str, Dimension] = {each: each for each in DIMENSIONS}


def configuring_in(words: str) -> dict[Dimension, Configuring]:
    """Parse the value of ``--configure``, which says who chooses the settings of roles.

    `words` is one word for all settings (``auto``), or one word for each
    (``model=auto,skills=ask``).
    Raises: UsageMistake.
    """
    known: dict[str, Configuring] = {each: each for each in get_args(Configuring)}
    if words in known:
        return dict.fromkeys(DIMENSIONS, known[words])
    found: dict[Dimension, Configuring] = {}
    for word in words.split(","):
        name, _, who = word.strip().partition("=")
        dimension = _DIMENSIONS.get(name)
        if dimension is None or dimension in found or who not in known:
            raise UsageMistake(
                f"--configure {words!r} says nothing; write one of {', '.join(known)}, or "
                "model=WHO,skills=WHO"
            )
        found[dimension] = known[who]
    return found


def is_choosing(configuring: Mapping[Dimension, Configuring]) -> bool:
    """Whether a person or a model configures the roles."""
    return any(who != "given" for who in configuring.values())


def model_of_roles(model: str | None, others: Sequence[str] = ()) -> str:
    """Return the default model of roles.

    The default is `model`, or the first of `others`, or the model in the user's settings.
    Raises: UsageMistake when there is no model.
    """
    if model is not None or others:
        return model or others[0]
    chosen = Configuration(Path(), os.environ).model
    if chosen is None:
        raise UsageMistake(
            "say which model the roles use: -m PROVIDER:NAME, with one of "
            f"{model_choices(os.environ)}; or --scenario FILE to have them act a script"
        )
    return chosen


async def models_before(store: Store, state: FlowState) -> tuple[str, ...]:
    """Return the models of the roles that have begun, in the order of `state.sessions`."""
    found: list[str] = []
    lost = await lost_roles(store.backend, state)
    for role, session in state.sessions.items():
        if role in lost:
            continue
        notes = await store.backend.notes(session, (SessionStarted.kind,))
        body = body_of(notes[0]) if notes else None
        agent = (body.agent or {}) if isinstance(body, SessionStarted) else {}
        found += [str(agent["model"])] if agent.get("model") else []
    return tuple(dict.fromkeys(found))


def role_agents(acting: RoleOptions) -> list[Agent]:
    """Return an agent for each role, and one for the role that writes feedback."""
    if acting.agents:
        return list(acting.agents)
    return [role_agent(acting, role) for role in (*acting.roles, FEEDBACK_ROLE)]


def role_agent(acting: RoleOptions, role: str) -> Agent:
    """Return the agent of the base role `role`, even if the role was added during the flow."""
    configuration = Configuration(Path(), os.environ)
    return Agent(
        role,
        # without a model no turn runs; the command only records a decision
        model=acting.named_model or ECHO,
        instructions=INSTRUCTIONS,
        tools=builtin_tools(acting.permissions),
        permissions=acting.permissions,
        **configuration.timeouts,
        **configuration.budget,
    )
