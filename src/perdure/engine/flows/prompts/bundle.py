"""The system prompt of a role, which does not change during its session."""

from __future__ import annotations

from collections.abc import Iterator

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
    parts = _parts(role, record_folder, contracts, readings, instructions)
    return "\n\n".join((*parts, *(_skill_text(skill) for skill in skills)))


def _skill_text(skill: Skill) -> str:
    return f"# Skill {skill.name} ({skill.path})\n\n{skill.description}\n\n{skill.text}".rstrip()


def _parts(
    role: str,
    record_folder: str,
    contracts: Contracts,
    readings: tuple[RequiredText, ...],
    instructions: str | None,
) -> Iterator[str]:
    of = base_role(role)
    who = f"the role `{of}`" if role == of else f"`{role}`, an instance of the role `{of}`"
    yield f"You are {who} in this flow. Its record folder is `{record_folder}`."
    if instructions:
        yield instructions.strip()
    yield contracts.handoff.strip()
    yield contracts.records.strip()
    for reading in readings:
        yield f"# Required reading {reading.name} ({reading.path})\n\n{reading.text.strip()}"
