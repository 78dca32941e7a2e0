"""Decisions about a call before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from perdure.errors import ToolDenied
from perdure.session.messages import ToolCallPart
from perdure.tools.approval import Bound
from perdure.tools.builtin.proposal import proposing
from perdure.tools.decorator import tool
from perdure.tools.permission_check import RULE_SETS, RuleSet, effective_args, judge_call, judge_of
from perdure.tools.permissions import ApprovalMode, Permissions
from perdure.tools.registry import registry_of
from perdure.tools.spec import Action, Subject, ToolSpec

KEY = "ghp_" + "a1B2c3D4" * 5


def spec_of(action: Action | None = "process", **settings: Any) -> ToolSpec:
    @tool
    def act(what: str, extra: int = 0) -> str:
        """Act."""
        return what

    def examine(args: Mapping[str, object], permissions: Permissions) -> Subject:
        if args["what"] == "doomed":
            raise ToolDenied("act", "never that")
        return Subject(str(args["what"]), str(args["what"]))

    if action is None:
        return act
    return proposing(action, examine, **settings)(act)


def mode(approval: ApprovalMode) -> Permissions:
    return Permissions(approval=approval)


def test_permission_decision_depends_on_tool_permissions_and_grants() -> None:
    registry = registry_of([spec_of()])
    call = ToolCallPart("c", "act", {"what": "x"})
    granted = frozenset(("act x",))
    bound = Bound()
    assert judge_of(registry, mode("ask"))(call, frozenset(), None).decision == "examine"
    assert judge_of(registry, mode("ask"))(call, frozenset(), bound).decision == "ask"
    assert judge_of(registry, mode("ask"))(call, granted, bound).decision == "run"
    assert judge_of(registry, mode("ask"), granted)(call, frozenset(), bound).decision == "run"
    strict = RuleSet({"process": "ask"}, honours_grants=False)
    judge = judge_of(registry, mode("auto"), granted, strict)
    assert judge(call, granted, bound).decision == "ask"
    other = ToolCallPart("c", "other", {})
    assert judge_of(registry, mode("plan"))(other, frozenset(), None).decision == "run"


def test_tool_without_an_action_runs_without_approval() -> None:
    assert judge_call(spec_of(None), {"nonsense": 1}, mode("plan")).decision == "run"


@pytest.mark.parametrize(
    ("approval", "decisions"),
    [
        ("ask", ["ask", "ask", "ask", "ask"]),
        ("plan", ["refuse", "refuse", "refuse", "refuse"]),
        ("accept-edits", ["run", "ask", "ask", "ask"]),
        ("auto", ["run", "run", "run", "run"]),
    ],
)
def test_each_approval_mode_gives_the_expected_decision_for_each_action(
    approval: ApprovalMode, decisions: list[str]
) -> None:
    actions: list[Action] = ["fs_write", "process", "egress", "os"]
    found = [judge_call(spec_of(a), {"what": "x"}, mode(approval)).decision for a in actions]
    assert found == decisions


def test_invalid_or_denied_call_is_refused_without_asking() -> None:
    for args, code in (({"what": "doomed"}, "tool_denied"), ({"what": 1}, "invalid_arguments")):
        ruling = judge_call(spec_of(), args, mode("ask"))
        assert (ruling.decision, ruling.error_code) == ("refuse", code)


def test_always_grant_applies_to_exactly_the_same_call() -> None:
    asked = judge_call(spec_of(), {"what": "x"}, mode("ask"))
    assert asked.grant is not None
    granted = frozenset((asked.grant,))
    assert judge_call(spec_of(), {"what": "x"}, mode("ask"), granted).decision == "run"
    assert judge_call(spec_of(), {"what": "x "}, mode("ask"), granted).decision == "ask"
    assert judge_call(spec_of(), {"what": "x"}, mode("plan"), granted).decision == "refuse"


def test_rule_set_that_ignores_grants_asks_despite_a_grant() -> None:
    rules = RuleSet({"process": "ask"}, honours_grants=False)
    ruling = judge_call(spec_of(), {"what": "x"}, mode("auto"), frozenset(("act x",)), rules)
    assert (ruling.decision, ruling.grant) == ("ask", None)


def test_action_missing_in_rule_set_is_rejected() -> None:
    assert (
        judge_call(spec_of("os"), {"what": "x"}, mode("ask"), rules=RuleSet({})).decision
        == "refuse"
    )


def test_tool_that_needs_approval_ignores_grants() -> None:
    spec = spec_of(is_gated=True)
    for approval in ("ask", "accept-edits", "auto"):
        ruling = judge_call(spec, {"what": "x"}, mode(approval), frozenset(("act x",)))
        assert (ruling.decision, ruling.grant) == ("ask", None)
    assert judge_call(spec, {"what": "x"}, mode("plan")).decision == "refuse"


@pytest.mark.parametrize("what", ["", "x" * 600, f"curl -H {KEY}"])
def test_call_that_cannot_be_shown_whole_always_needs_approval(what: str) -> None:
    ruling = judge_call(spec_of(), {"what": what}, mode("ask"))
    assert (ruling.decision, ruling.grant) == ("ask", None)
    assert KEY not in ruling.text
    assert len(ruling.text) < 600


def test_question_shows_no_control_characters() -> None:
    ruling = judge_call(spec_of(), {"what": "a\x1b[2Jb\u202ec"}, mode("ask"))
    assert ruling.text.isprintable()


def test_model_can_set_arguments_but_not_configuration() -> None:
    spec = spec_of(config_only=frozenset(("cwd", "env")))
    args: dict[str, object] = {
        "what": "x",
        "cwd": "/",
        "env": {},
        "__proto__": {},
        "constructor": 1,
    }
    assert effective_args(spec, args) == {"what": "x"}
    assert judge_call(spec, args, mode("auto")).decision == "run"


def test_unchanged_arguments_are_not_copied() -> None:
    args = {"what": "x"}
    assert effective_args(spec_of(), args) is args


def test_every_approval_mode_has_a_decision_for_every_action() -> None:
    for rules in RULE_SETS.values():
        assert set(rules.actions) == {"fs_write", "process", "egress", "os"}


def test_call_without_an_examine_function_gives_no_grant() -> None:
    spec = msgspec.structs.replace(spec_of(), examine=None)
    assert judge_call(spec, {"what": "x"}, mode("ask")).grant is None


def test_end_of_a_cut_call_shows_no_part_of_a_secret() -> None:
    call = ToolCallPart("c", "act", {"what": "no " * 163 + KEY})
    judge = judge_of(registry_of([spec_of()]), mode("ask"))
    ruling = judge(call, frozenset(), Bound())
    assert ruling.preview is not None
    for shown in (ruling.text, ruling.preview):
        assert "no no" in shown
        assert "ghp_" not in shown
