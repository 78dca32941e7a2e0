"""Decide whether files, a person or a selector choose the model and the skills of a role.

A selector is a model that gets the offers and answers in one line. An invalid choice is returned
with the reason, at most three times; after that a person is asked. Pure.
"""

from __future__ import annotations

import msgspec

from perdure.engine.flows.rules.answers import Choice, check_offered, choice_in, invalid_answer
from perdure.session.flows.kinds import (
    Configuring,
    Dimension,
    Offers,
    RoleConfigured,
    SelectorOpened,
)
from perdure.session.flows.run import FlowState, RoleConfiguration
from perdure.session.ids import StreamId, stream_id

MOST_ATTEMPTS = 3
"""Maximum attempts of a selector before a person is asked."""

DIMENSIONS: tuple[Dimension, ...] = ("model", "skills")
"""The parts of a role's configuration that can be chosen before it begins."""


class Undecided(msgspec.Struct, frozen=True):
    """The choices that a selector and a person have to make before a role can begin."""

    by_selector: Offers = Offers()
    by_person: Offers = Offers()

    @property
    def is_for_selector(self) -> bool:
        """Whether a selector has a choice to make."""
        return _is_any(self.by_selector)

    @property
    def is_for_person(self) -> bool:
        """Whether a person has a choice to make."""
        return _is_any(self.by_person)

    @property
    def together(self) -> Offers:
        """All choices, for a person who also makes the choices of the selector."""
        return Offers(
            self.by_selector.models or self.by_person.models,
            self.by_selector.skills or self.by_person.skills,
        )


def who_configures(state: FlowState, dimension: Dimension) -> Configuring:
    """Return whether files, people or selectors choose `dimension` (model or skills) of roles."""
    if dimension == "skills" and state.skills_configuring is not None:
        return state.skills_configuring
    return state.configuring


def is_configuring(state: FlowState) -> bool:
    """Return whether a role might wait until its configuration is chosen."""
    return any(who_configures(state, dimension) != "given" for dimension in DIMENSIONS)


def undecided_choices(state: FlowState, role: str, offers: Offers) -> Undecided:
    """Return the parts of `offers` from which nothing was chosen for `role` yet.

    A running selector chooses from the offers that existed when it began.
    """
    in_part = state.chosen_in_part.get(role, RoleConfiguration())
    models = offers.models if in_part.model is None else ()
    skills = offers.skills if in_part.skills is None else {}
    of_model, of_skills = (who_configures(state, dimension) for dimension in DIMENSIONS)
    opened = state.selecting.get(role)
    asked = Offers(models if of_model == "ask" else (), skills if of_skills == "ask" else {})
    if opened is not None:
        return Undecided(opened.offers, asked)
    chosen = Offers(models if of_model == "auto" else (), skills if of_skills == "auto" else {})
    return Undecided(chosen, asked)


def opening(
    state: FlowState, role: str, offers: Offers, refused: str | None = None
) -> SelectorOpened:
    """Return the body that records the next selector of `role`.

    `refused` is the error in the answer of the previous selector; None if there was none.
    """
    before = state.selecting.get(role)
    number = len(state.selectors.get(role, ())) + 1
    session = selector_session(state.run.flow_id, role, number)
    attempt = 1 if before is None else before.attempt + 1
    return SelectorOpened(role, session, attempt, offers, refused)


def selector_session(flow: StreamId, role: str, number: int) -> StreamId:
    """Return the id of the session of the `number`-th selector of a role instance.

    Raises: ValueError if the flow's id is too long for a session id.
    """
    return stream_id(f"{flow}__{role}__selector-{number}")


def selection(
    state: FlowState, opened: SelectorOpened, answer: str, *, is_partial: bool
) -> RoleConfigured:
    """Return the configuration in the answer of a selector.

    Raises: InvalidEntry if the answer does not choose exactly the dimensions that are missing.
    """
    choice = choice_in(answer)
    check_offered(choice, opened.offers)
    missing = [
        *(["model=NAME"] if opened.offers.models and choice.model is None else []),
        *(["skills=NAME,NAME or skills=none"] if _lacks_skills(opened, choice) else []),
    ]
    if missing:
        raise invalid_answer(f"the answer lacks {' and '.join(missing)}")
    before = state.roles.get(opened.role, RoleConfiguration())
    skills = before.skills if choice.skills is None else tuple(dict.fromkeys(choice.skills))
    return RoleConfigured(
        opened.role,
        choice.model or before.model,
        skills,
        before.tools,
        is_automatic=True,
        selector=opened.session,
        is_partial=is_partial,
    )


def _lacks_skills(opened: SelectorOpened, choice: Choice) -> bool:
    return bool(opened.offers.skills) and choice.skills is None


def _is_any(offers: Offers) -> bool:
    return bool(offers.models or offers.skills)
