"""The system prompt of a role, which does not change during its session."""

from __future__ import annotations

from perdure.engine.flows.prompts.entry import Contracts, RequiredText, Skill
from perdure.session.flows.graph import base_role


def context_bundle(
    role: str,
    record_folder: str,
    contracts: Contracts,
    readings: tuple[RequiredText, ...] = (),
    instructions: str | None = None,
    *,
    skills: tuple[Skill, ...] = (),
) -> str:
    """Return the system prompt of the role instance `role`.

    `instructions` are the instructions of the role's agent. `readings` are the required readings of
    the role. `skills` are additional skills of the role.
    """
    of = base_role(role)
    who = f"the role `{of}`" if role == of else f"`{role}`, an instance of the role `{of}`"
    parts = [f"You are {who} in this flow. Its record folder is `{record_folder}`."]
    if instructions:
        parts.append(instructions.strip())
    parts += [contracts.handoff.strip(), contracts.records.strip()]
    for each in readings:
        parts.append(f"# Required reading {each.name} ({each.path})\n\n{each.text.strip()}")
    for each in skills:
        skill = f"# Skill {each.name} ({each.path})\n\n{each.description}\n\n{each.text}"
        parts.append(skill.rstrip())
    return "\n\n".join(parts)
