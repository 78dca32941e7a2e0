"""The consent in force depends only on this user's decisions, not on those of other users."""

from __future__ import annotations

from perdure.session.codec import body_of, encode
from perdure.session.entries import Entry
from perdure.session.flows.consent import consent_after, withheld
from perdure.session.flows.fold import flow_state
from perdure.session.flows.kinds import ConsentChanged, ConsentMode, FlowStarted, WorkspaceBound
from perdure.session.flows.run import ConsentState, FlowState
from perdure.session.notes import SideBody
from tests.fakes.flow_log import FLOW, graph

LINE = graph("plan>build", plan="owner", build="developer")


def state_of(*bodies: SideBody, foreign: tuple[int, ...] = (), mode: ConsentMode) -> FlowState:
    started = FlowStarted("p", "/w", "/w/r", LINE, ("plan",), mode)
    entries = [
        Entry(FLOW, seq, "side", None, None, seq, body.kind, 1, encode(body))
        for seq, body in enumerate((started, *bodies))
    ]
    log = ((entry, body_of(entry)) for entry in entries)
    return flow_state(log, lambda entry: entry.seq not in foreign)


def test_consent_mode_changed_by_this_user_takes_effect() -> None:
    state = state_of(ConsentChanged("me", "partial-access"), mode="no-access")
    assert state.consent == state.run.consent_state
    assert state.consent.mode == "partial-access"
    assert not state.is_foreign


def test_flow_of_another_user_has_no_access_without_consent() -> None:
    granted = ConsentChanged("them", "partial-access", "bash", "rm -rf /")
    state = state_of(granted, mode="full-access", foreign=(0, 1))
    assert state.run.consent_state.bash.allowed_commands
    assert state.consent == ConsentState()
    state = state_of(
        granted, ConsentChanged("me", "partial-access"), mode="full-access", foreign=(0, 1)
    )
    assert state.consent.mode == "partial-access"
    assert not state.consent.bash.allowed_commands
    assert state.run.consent_state.bash.allowed_commands  # kept, and exported as recorded


def test_consent_changed_by_another_user_gives_no_access() -> None:
    state = state_of(ConsentChanged("them", "full-access"), mode="partial-access", foreign=(1,))
    assert (state.consent.mode, state.is_place_in_force) == ("no-access", False)
    bound = WorkspaceBound("/mine", "/mine/r")
    state = state_of(ConsentChanged("them", "full-access"), bound, mode="no-access", foreign=(1,))
    assert state.is_place_in_force


def test_withholding_consent_keeps_the_recorded_consent() -> None:
    state = state_of(mode="full-access")
    assert withheld(state).run == state.run
    assert (
        consent_after(ConsentState(), ConsentChanged("me", "full-access"), 1).mode == "full-access"
    )
