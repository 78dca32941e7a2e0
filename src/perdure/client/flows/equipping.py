"""What a role of a flow is equipped with before it begins: the model it uses, what it is taught.

As its agent and its own files say, or as a person chose for the role; where the flow is one in
which people are asked, the role waits until somebody did.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engine.flows.files.skills import SkillShelf
from perdure.engine.flows.roles import Unconfigured
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE
from perdure.engine.flows.telling.entry import Skill
from perdure.session.flows.graph import base_role
from perdure.session.flows.kinds import Offers
from perdure.session.flows.run import FlowState


def check_configured(state: FlowState, role: str, models: Sequence[str], shelf: SkillShelf) -> None:
    """Whether `role` can begin a node; `models` are those a person can choose from. Blocks.

    Raises: Unconfigured when somebody has to choose first, or the chosen model is gone; ConfigError
    for a skill that cannot be read.
    """
    if state.configuring != "ask" or role == FEEDBACK_ROLE:
        return
    chosen = state.roles.get(role)
    if chosen is not None and (chosen.model is None or chosen.model in models or not models):
        return
    has_begun = role in state.sessions  # and was told its skills then
    taught = {} if has_begun else {s.name: s.description for s in shelf.whole().values()}
    offers = Offers(tuple(models) if len(models) > 1 or chosen is not None else (), taught)
    if chosen is not None:
        raise Unconfigured(
            f"its model {chosen.model} is not offered any more; {_told(offers)}", offers
        )
    if offers.models or offers.skills:
        raise Unconfigured(_told(offers), offers)


def _told(offers: Offers) -> str:
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
