"""Whether a person or a selector configures a role, and the effect of a selector's answer."""

from __future__ import annotations

import pytest

from perdure.engine.flows.selection import (
    Undecided,
    is_configuring,
    opening,
    selection,
    undecided_choices,
    who_configures,
)
from perdure.errors import InvalidEntry
from perdure.session.flows.fold import flow_state
from perdure.session.flows.kinds import (
    Configuring,
    FlowStarted,
    NodeParked,
    Offers,
    RoleConfigured,
    SelectorOpened,
)
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody
from tests.fakes.flow_log import entry_of, graph

LINE = graph("owner-intake>end", **{"owner-intake": "owner", "end": "owner"})
OFFERS = Offers(("p:small", "p:big"), {"tests": "How we test.", "prose": "How we write."})
FIRST = SelectorOpened(
    "owner", StreamId("20260527T143000123Z-a1b2c3__owner__selector-1"), 1, OFFERS
)


def after(
    *bodies: SideBody, of_model: Configuring = "auto", of_skills: Configuring | None = None
) -> FlowState:
    started = FlowStarted(
        *("p", "/w", "/w/r", LINE, ("owner-intake",)),
        configuring=of_model,
        skills_configuring=of_skills,
    )
    return flow_state((entry_of(n, body), body) for n, body in enumerate((started, *bodies)))


def test_mode_for_models_applies_to_skills_by_default() -> None:
    assert who_configures(after(), "skills") == "auto"
    state = after(of_skills="ask")
    assert (who_configures(state, "model"), who_configures(state, "skills")) == ("auto", "ask")
    assert is_configuring(after(of_model="given", of_skills="auto"))
    assert not is_configuring(after(of_model="given"))


@pytest.mark.parametrize(
    ("of_model", "of_skills", "by_selector", "by_person"),
    [
        ("auto", None, OFFERS, Offers()),
        ("ask", None, Offers(), OFFERS),
        ("auto", "ask", Offers(OFFERS.models), Offers((), OFFERS.skills)),
        ("given", "auto", Offers((), OFFERS.skills), Offers()),
    ],
)
def test_configuration_mode_decides_if_a_person_or_the_selector_chooses(
    of_model: Configuring, of_skills: Configuring | None, by_selector: Offers, by_person: Offers
) -> None:
    state = after(of_model=of_model, of_skills=of_skills)
    found = undecided_choices(state, "owner", OFFERS)
    assert found == Undecided(by_selector, by_person)
    assert found.is_for_selector == (by_selector != Offers())
    assert found.is_for_person == (by_person != Offers())


def test_next_selector_session_gets_a_new_number() -> None:
    assert opening(after(), "owner", OFFERS) == FIRST
    state = after(FIRST)
    assert undecided_choices(state, "owner", Offers()).by_selector == OFFERS
    second = opening(state, "owner", OFFERS, "no")
    assert (second.attempt, second.session[-1], second.refused) == (2, "2", "no")
    # After a question to a person, attempts restart at one; session numbers continue.
    parked = NodeParked("owner-intake", "owner", "role-configuration", offers=OFFERS)
    third = opening(after(FIRST, parked), "owner", OFFERS)
    assert (third.attempt, third.session[-1]) == (1, "2")


def test_selection_entry_records_the_selector_session() -> None:
    chosen = selection(
        after(FIRST), FIRST, " model=p:big\nskills=tests,tests,prose\n", is_partial=False
    )
    assert chosen == RoleConfigured(
        *("owner", "p:big", ("tests", "prose")), is_automatic=True, selector=FIRST.session
    )
    assert selection(after(FIRST), FIRST, "model=p:big skills=none", is_partial=False).skills == ()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "say what the role works with"),
        ("default", "lacks model=NAME and skills="),
        ("model=p:big", "lacks skills="),
        ("skills=none", "lacks model=NAME"),
        ("model=p:huge skills=none", "no model 'p:huge'"),
        ("model=p:big skills=magic", "no skill 'magic'"),
        ("I choose model=p:big skills=none", "'I' says nothing"),
        ("```\nmodel=p:big skills=none\n```", "'```' says nothing"),
    ],
)
def test_selector_answer_with_wrong_choices_is_rejected(answer: str, why: str) -> None:
    with pytest.raises(InvalidEntry, match=why):
        selection(after(FIRST), FIRST, answer, is_partial=False)


def test_person_chooses_the_settings_that_the_selector_left_open() -> None:
    offers = Offers(OFFERS.models)
    opened = SelectorOpened("owner", FIRST.session, 1, offers)
    state = after(opened, of_skills="ask")
    part = selection(state, opened, "model=p:big", is_partial=True)
    state = after(opened, part, of_skills="ask")
    assert "owner" not in state.roles
    assert undecided_choices(state, "owner", OFFERS) == Undecided(
        Offers(), Offers((), OFFERS.skills)
    )
    person = RoleConfigured("owner", skills=("tests",), by="ana")
    state = after(opened, part, person, of_skills="ask")
    assert (state.roles["owner"].model, state.roles["owner"].skills) == ("p:big", ("tests",))
    assert not state.selecting
    assert not state.chosen_in_part
