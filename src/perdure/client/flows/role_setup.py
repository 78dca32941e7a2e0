"""The model, tools and skills of a role before it begins.

The settings come from the agent and the files of the role, or a person or a selector chooses them.
If the settings of a role must be chosen in this flow, the role begins only after the choice.
Invalid choices are rejected immediately.
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
from perdure.session.ledger import InterruptPolicy


@dataclass(frozen=True, slots=True)
class Equipment:
    """The agents, models and hooks that a program provides for roles.

    The class `Flows` documents the fields.

    `agents` contains the agents of the program's runtime, by id.
    """

    models: ModelClient
    agents: Mapping[str, Agent]
    on_interrupt: InterruptPolicy = "continue"
    offered: tuple[str, ...] = ()
    default_agent: Callable[[str], Agent] | None = None

    def agent(self, role: str) -> Agent | None:
        """Return the agent of a role instance; None if the program has none."""
        return agent_for(self.agents, role)

    def required_agent(self, role: str) -> Agent:
        """Return the agent of a role instance, or else the default agent of its base role.

        Raises: ConfigError if the program has no agent for the role.
        """
        agent = self.agent(role)
        if agent is None and self.default_agent is not None:
            agent = self.default_agent(base_role(role))
        if agent is not None:
            return agent
        known = ", ".join(sorted(self.agents)) or "none"
        raise ConfigError(
            f"role {role!r} has no agent: give the runtime one with the id {base_role(role)!r} "
            f"(it has: {known})"
        )

    def check(self, roles: Mapping[str, RoleConfiguration]) -> None:
        """Reject unknown models and tools of role instances.

        Raises: the errors of `check_models` and `check_tools`.
        """
        for role, chosen in roles.items():
            self.check_models(() if chosen.model is None else (chosen.model,), "roles")
            self.check_tools(role, chosen.tools or ())

    def check_settings(self, settings: RunSettings | None) -> None:
        """Reject a model of an unknown provider. Raises: the errors of `check_models`."""
        if settings is not None and settings.model is not None:
            self.check_models((settings.model,), "settings")

    def check_models(self, names: Iterable[str], argument: str) -> None:
        """Reject models of unknown providers; keys are not checked.

        Raises: WrongArgument if the value of `argument` is not a model; ConfigError, which lists
        the known providers.
        """
        for name in names:
            require_model_name(name, argument)
            if isinstance(self.models, ModelRouter):
                self.models.provider_of(name)

    def check_tools(
        self, role: str, names: Collection[str], begun_with: Collection[str] | None = None
    ) -> None:
        """Reject tools that `role` lacks; the tools of an unknown agent are not checked.

        `begun_with` are the tools of the role at the start of its session; None before the session
        starts.
        Raises: ConfigError, which lists the role's tools.
        """
        if begun_with is None:
            agent = self.agent(role)
            if agent is None or agent.mcp_servers:
                return
            begun_with = agent.registry.names
        unknown = [name for name in names if name not in begun_with]
        if unknown:
            raise ConfigError(no_tool(role, unknown, begun_with))


def no_tool(role: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    """Return the error text which states that `role` does not have the tools `unknown`."""
    return f"{role} has no tool {', '.join(unknown)}; it has: {', '.join(known) or 'none'}"


def agent_for(agents: Mapping[str, Agent], role: str) -> Agent | None:
    """Return the agent of a role instance, or else the agent of its base role.

    If the feedback role has no agent, the agent of the owner is returned.
    """
    names = (role, base_role(role), *((OWNER,) if role == FEEDBACK_ROLE else ()))
    return next((agents[name] for name in names if name in agents), None)


def undecided_for(
    state: FlowState, role: str, models: Sequence[str], shelf: SkillShelf
) -> Undecided:
    """Return the choices that `role` needs before it begins; `models` are the possible models.

    Blocks the thread.
    Raises: ConfigError for a skill that cannot be read.
    """
    if not is_configuring(state) or role == FEEDBACK_ROLE:
        return Undecided()
    chosen = state.roles.get(role)
    if chosen is not None and (
        who_configures(state, "model") == "given" or not is_gone(chosen, models)
    ):
        return Undecided()
    has_begun = role in state.sessions  # and got its skills then
    taught = {} if has_begun else {s.name: s.description for s in shelf.whole().values()}
    offers = Offers(tuple(models) if len(models) > 1 or chosen is not None else (), taught)
    return undecided_choices(state, role, offers)


def is_gone(chosen: RoleConfiguration, models: Sequence[str]) -> bool:
    """Whether the chosen model is not in `models`; False if `models` is empty."""
    return bool(models) and chosen.model is not None and chosen.model not in models


def unconfigured_error(state: FlowState, role: str, open: Undecided, why: str = "") -> Unconfigured:
    """Return the error which states that a person must choose first; `why` is the reason."""
    offers, chosen = open.together, state.roles.get(role)
    told = _offer_text(offers)
    if chosen is not None:
        told = f"its model {chosen.model} is not offered any more; {told}"
    return Unconfigured(f"{why}{told}", offers)


def _offer_text(offers: Offers) -> str:
    """Return a text that lists the choices."""
    parts = [f"models: {', '.join(offers.models)}"] if offers.models else []
    skills = [f"{name} ({told})" for name, told in offers.skills.items()]
    parts += [f"skills: {'; '.join(skills)}"] if skills else []
    return f"choose from {', '.join(parts)}"


def skills_of(state: FlowState, role: str, shelf: SkillShelf) -> tuple[Skill, ...]:
    """Return the skills of `role`: the chosen skills, or else the skills in the role's own file.

    Blocks the thread.

    A chosen skill that no longer exists is omitted.
    Raises: ConfigError.
    """
    chosen = state.roles.get(role)
    if chosen is None or chosen.skills is None:
        return shelf.of_role(base_role(role))
    there = shelf.names()
    return tuple(shelf.skill(name) for name in chosen.skills if name in there)
