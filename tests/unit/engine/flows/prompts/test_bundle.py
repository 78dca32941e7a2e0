from __future__ import annotations

from perdure.engine.flows.prompts.bundle import context_bundle
from perdure.engine.flows.prompts.entry import RequiredText, Skill
from tests.fakes.flow_contracts import CONTRACTS


def test_system_prompt_has_role_contracts_and_readings_in_order() -> None:
    reading = RequiredText("$RULES", "docs/rules.md", "Be brief.\n")
    told = context_bundle("developer_2", "/w/r", CONTRACTS, (reading,), "You like tests.")
    places = [
        told.index(text)
        for text in (
            "`developer_2`, an instance of the role `developer`",
            "`/w/r`",
            "You like tests.",
            CONTRACTS.handoff,
            CONTRACTS.records,
            "# Required reading $RULES (docs/rules.md)\n\nBe brief.",
        )
    ]
    assert places == sorted(places)


def test_system_prompt_begins_with_the_name_of_the_role() -> None:
    assert context_bundle("owner", "/r", CONTRACTS).startswith("You are the role `owner`")


def test_skills_are_last_in_system_prompt() -> None:
    skill = Skill("tests", "How we test.", "a-docs/skills/tests/SKILL.md", "Run them all.")
    told = context_bundle("owner", "/r", CONTRACTS, skills=(skill,))
    taught = "# Skill tests (a-docs/skills/tests/SKILL.md)\n\nHow we test.\n\nRun them all."
    assert told.endswith(taught)
