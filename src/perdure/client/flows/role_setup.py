"""What a role of a flow is equipped with before it begins: the model it uses, what it is taught.

As its agent and its own files say, or as was chosen for the role; where the flow is one in which
people or selectors choose, the role waits until somebody did. What nobody could be equipped with is
refused when it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perdure.client.agents.agent import Agent
from perdure.engine.flows.files.skills import SkillShelf
from perdure.engine.flows.prompts.entry import Skill
from perdure.engine.flows.roles import Unconfigured
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE
from perdure.engine.flows.rules.structure import OWNER
from perdure.engine.flows.selection import (
    Undecided,
    is_configuring,
    undecided_choices,
    who_configures,
)
from perdure.errors import ConfigError
from perdure.models.catalogue import require_model_name
from perdure.models.protocol import ModelClient
from perdure.models.router import ModelRouter
from perdure.session.flows.graph import base_role
from perdure.session.flows.kinds import Offers, RunSettings
from perdure.session.flows.run import FlowState, RoleConfiguration


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a program has for roles to work with: its models, and its agents by id."""

    models: ModelClient
    agents: Mapping[str, Agent]

    def agent(self, role: str) -> Agent | None:
        """The agent that a role instance is; None where the program has none."""
        return agent_for(self.agents, role)

    def check(self, roles: Mapping[str, RoleConfiguration]) -> None:
        """Refuse what there is not for role instances to begin with. Raises: as the others."""
        for role, chosen in roles.items():
            self.check_models(() if chosen.model is None else (chosen.model,), "roles")
            self.check_tools(role, chosen.tools or ())

    def check_settings(self, settings: RunSettings | None) -> None:
        """Refuse a model of a provider that the program does not know. Raises: as the others."""
        if settings is not None and settings.model is not None:
            self.check_models((settings.model,), "settings")

    def check_models(self, names: Iterable[str], argument: str) -> None:
        """Refuse models of providers that the program does not know; their keys it may not need.

        Raises: WrongArgument for `argument`, which names no model; ConfigError, which says which
        providers there are.
        """
        for name in names:
            require_model_name(name, argument)
            if isinstance(self.models, ModelRouter):
                self.models.provider_of(name)

    def check_tools(
        self, role: str, names: Collection[str], begun_with: Collection[str] | None = None
    ) -> None:
        """Refuse tools that `role` does not have; those of an agent that is not here may be any.

        `begun_with` are those its session began with, None where it has none yet.
        Raises: ConfigError, which says which it has.
        """
        if begun_with is None:
            agent = agent_for(self.agents, role)
            if agent is None or agent.mcp_servers:
                return
            begun_with = agent.registry.names
        unknown = [name for name in names if name not in begun_with]
        if unknown:
            raise ConfigError(no_tool(role, unknown, begun_with))


def no_tool(role: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    """Says that `role` has none of the `unknown` tools."""
    return f"{role} has no tool {', '.join(unknown)}; it has: {', '.join(known) or 'none'}"


def agent_for(agents: Mapping[str, Agent], role: str) -> Agent | None:
    """The agent that a role instance is: its own, else its base role's; of feedback the owner's."""
    names = (role, base_role(role), *((OWNER,) if role == FEEDBACK_ROLE else ()))
    return next((agents[name] for name in names if name in agents), None)


def required_agent(
    agents: Mapping[str, Agent], role: str, default: Callable[[str], Agent] | None
) -> Agent:
    """As `agent_for`; where there is none, what `default` makes of the base role.

    Raises: ConfigError when there is none.
    """
    agent = agent_for(agents, role)
    if agent is None and default is not None:
        agent = default(base_role(role))
    if agent is not None:
        return agent
    known = ", ".join(sorted(agents)) or "none"
    raise ConfigError(
        f"role {role!r} has no agent: give the runtime one with the id {base_role(role)!r} "
        f"(it has: {known})"
    )


def undecided_for(
    state: FlowState, role: str, models: Sequence[str], shelf: SkillShelf
) -> Undecided:
    """What has to be chosen before `role` can begin a node; `models` are those there are. Blocks.

    Raises: ConfigError for a skill that cannot be read.
    """
    if not is_configuring(state) or role == FEEDBACK_ROLE:
        return Undecided()
    chosen = state.roles.get(role)
    if chosen is not None and (
        who_configures(state, "model") == "given" or not is_gone(chosen, models)
    ):
        return Undecided()
    has_begun = role in state.sessions  # and was told its skills then
    taught = {} if has_begun else {s.name: s.description for s in shelf.whole().values()}
    offers = Offers(tuple(models) if len(models) > 1 or chosen is not None else (), taught)
    return undecided_choices(state, role, offers)


def is_gone(chosen: RoleConfiguration, models: Sequence[str]) -> bool:
    """Whether the model that was chosen is none of `models`, where there are any."""
    return bool(models) and chosen.model is not None and chosen.model not in models


def unconfigured_error(state: FlowState, role: str, open: Undecided, why: str = "") -> Unconfigured:
    """What tells that a person has to choose first, and `why`."""
    offers, chosen = open.together, state.roles.get(role)
    told = _offer_text(offers)
    if chosen is not None:
        told = f"its model {chosen.model} is not offered any more; {told}"
    return Unconfigured(f"{why}{told}", offers)


def _offer_text(offers: Offers) -> str:
    """What there is to choose from."""
    parts = [f"models: {', '.join(offers.models)}"] if offers.models else []
    skills = [f"{name} ({told})" for name, told in offers.skills.items()]
    parts += [f"skills: {'; '.join(skills)}"] if skills else []
    return f"choose from {', '.join(parts)}"


def skills_of(state: FlowState, role: str, shelf: SkillShelf) -> tuple[Skill, ...]:
    """What `role` is taught: what was chosen for it, else what its own file lists. Blocks.

    A skill that was chosen and is gone since is left out.
    Raises: ConfigError.
    """
    chosen = state.roles.get(role)
    if chosen is None or chosen.skills is None:
        return shelf.of_role(base_role(role))
    there = shelf.names()
    return tuple(shelf.skill(name) for name in chosen.skills if name in there)
