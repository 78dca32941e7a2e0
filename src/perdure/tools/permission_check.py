"""Decide whether a call runs, needs approval, or is refused, before the call has any effect.

The functions are pure. For security, the functions check in this order: effective arguments,
validation, policy, approval. A call that cannot run is refused before a person is asked. No other
module decides about approvals. Each approval mode is a `RuleSet`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.errors import PerdureError, ToolDenied, ToolError
from perdure.secrets.mask import mask_secrets
from perdure.session.messages import ToolCallPart
from perdure.tools.approval import Bound, Decision, Judge, Ruling
from perdure.tools.permissions import ApprovalMode, Permissions
from perdure.tools.registry import ToolRegistry
from perdure.tools.spec import Action, Subject, ToolSpec

MAX_SHOWN = 500
MAX_GRANT = 4000

_NEVER_NAMES = frozenset(("__proto__", "prototype", "constructor", "__class__", "__dict__"))


class RuleSet(msgspec.Struct, frozen=True):
    """The decision for each action.

    If `honours_grants` is True, a call runs without a question if an earlier answer "always"
    allowed it. `asks_hidden` means that writing a file needs approval if a name in its path starts
    with a dot, such as ``.github``, because such files configure other programs.
    """

    actions: Mapping[Action, Decision]
    honours_grants: bool = True
    asks_hidden: bool = False


RULE_SETS: Mapping[ApprovalMode, RuleSet] = {
    "ask": RuleSet({"fs_write": "ask", "process": "ask", "egress": "ask", "os": "ask"}),
    "plan": RuleSet(
        {"fs_write": "refuse", "process": "refuse", "egress": "refuse", "os": "refuse"},
        honours_grants=False,
    ),
    "accept-edits": RuleSet(
        {"fs_write": "run", "process": "ask", "egress": "ask", "os": "ask"}, asks_hidden=True
    ),
    "auto": RuleSet({"fs_write": "run", "process": "run", "egress": "run", "os": "run"}),
}
"""Maps the approval modes of an agent to rules. An action without a rule is refused."""


EXAMINE = Ruling("examine")


def effective_args(spec: ToolSpec, args: Mapping[str, object]) -> Mapping[str, object]:
    """Return `args` without arguments that are forbidden or that only the configuration sets."""
    dropped = spec.config_only | _NEVER_NAMES
    if dropped.isdisjoint(args):
        return args
    return {name: value for name, value in args.items() if name not in dropped}


def judge_of(
    registry: ToolRegistry,
    permissions: Permissions,
    granted: frozenset[str] = frozenset(),
    rules: RuleSet | None = None,
) -> Judge:
    """Return the function that judges calls of the tools in `registry` under `permissions`.

    `granted` are the permissions that people gave for the whole session. For `rules`, see
    `judge_call`.
    """

    def judge(call: ToolCallPart, in_turn: frozenset[str], bound: Bound | None) -> Ruling:
        if call.name not in registry.names:
            return Ruling("run")  # calls of unknown tools are answered elsewhere
        spec = registry.get(call.name)
        return bound_ruling(spec, call, permissions, granted | in_turn, rules, bound=bound)

    return judge


def bound_ruling(
    spec: ToolSpec,
    call: ToolCallPart,
    permissions: Permissions,
    granted: frozenset[str],
    rules: RuleSet | None,
    *,
    bound: Bound | None,
) -> Ruling:
    """Return the decision of `judge_call`.

    If `bound` is None but might be needed for the decision, return ``examine``.
    """
    if bound is not None:
        return judge_call(spec, call.args, permissions, granted, rules, bound=bound)
    if spec.action is None and spec.bind is not None:
        return EXAMINE
    ruling = judge_call(spec, call.args, permissions, frozenset(), rules)
    chosen = rules or RULE_SETS[permissions.approval]
    may_ask = ruling.decision == "run" and _looks_for_dots(spec, chosen)
    return EXAMINE if may_ask or ruling.decision == "ask" else ruling


def _looks_for_dots(spec: ToolSpec, rules: RuleSet) -> bool:
    """Return True if the approval depends on the path of the file that `spec` writes."""
    return rules.asks_hidden and spec.action == "fs_write" and spec.bind is not None


def judge_call(
    spec: ToolSpec,
    args: Mapping[str, object],
    permissions: Permissions,
    granted: frozenset[str] = frozenset(),
    rules: RuleSet | None = None,
    *,
    bound: Bound | None = None,
) -> Ruling:
    """Decide on a call of `spec` with `args`, given the grants of the session.

    By default, `rules` are the rules of the agent's mode. An approval is valid only for the call's
    arguments and the facts in `bound`. If `bound` is None, the answer "always" allows every later
    call of this tool with the same `Subject`.
    """
    chosen = rules or RULE_SETS[permissions.approval]
    if spec.action is None:
        return _without_action(spec, chosen, granted, bound)
    try:
        if spec.needs_approval is not None and spec.needs_approval(_given(spec, args)) is False:
            return Ruling("run")
        given = _given(spec, args)  # again: `needs_approval` may have changed its arguments
        subject = Subject("") if spec.examine is None else spec.examine(given, permissions)
    except PerdureError as error:
        reason = error.reason if isinstance(error, ToolError) else str(error)
        return Ruling("refuse", f"{spec.name}: {mask_secrets(reason)}", error_code=error.code)
    return _decided(spec, spec.action, subject, chosen, granted, bound=bound or Bound())


def _without_action(
    spec: ToolSpec, rules: RuleSet, granted: frozenset[str], bound: Bound | None
) -> Ruling:
    """Decide on a call of a tool without an action.

    The call runs, unless a person must first decide about a problem (`Doubt`) that no grant covers.
    """
    if bound is None or bound.doubt is None:
        return Ruling("run")
    grant = f"{spec.name} {bound.doubt.grant}"
    if rules.honours_grants and grant in granted:
        return Ruling("run", bound=bound)
    offered = grant if rules.honours_grants and grant.isprintable() else None
    choices = ("always", "deny") if offered else ("allow", "deny")
    text = f"May {spec.name} run? {_showable(bound.doubt.text)}"
    return Ruling("ask", text, offered, choices=choices, bound=bound)


def _given(spec: ToolSpec, args: Mapping[str, object]) -> Mapping[str, object]:
    """Return the arguments in the form that the tool receives. Raises: InvalidArguments."""
    given = effective_args(spec, args)
    return given if spec.arguments is None else spec.arguments(given)


def _decided(
    spec: ToolSpec,
    action: Action,
    subject: Subject,
    rules: RuleSet,
    granted: frozenset[str],
    *,
    bound: Bound,
) -> Ruling:
    decision = rules.actions.get(action, "refuse")
    if decision == "refuse":
        reason = "nothing is changed, run or sent in this mode; say what you would do instead"
        return Ruling("refuse", f"{spec.name}: {reason}", error_code=ToolDenied.code)
    if _looks_for_dots(spec, rules) and bound.is_hidden:
        decision = "ask"
    if decision != "ask" and not spec.is_gated:
        return Ruling("run")
    if (problem := bound.problem) is not None:
        reason = mask_secrets(f"{spec.name}: {problem.reason}")
        return Ruling("refuse", reason, error_code=problem.code)
    grant = None if spec.is_gated else grant_of(spec.name, subject, bound)
    if grant is not None and rules.honours_grants and grant in granted:
        return Ruling("run", bound=bound)
    offered = grant if rules.honours_grants else None
    preview = _preview(action, subject)
    text = _question(spec, subject)
    if bound.doubt is not None:
        text = f"{text} {_showable(bound.doubt.text)}"
    return Ruling("ask", text, offered, action=action, preview=preview, bound=bound)


def grant_of(tool: str, subject: Subject, bound: Bound) -> str | None:
    """Return the permission that the answer "always" gives; None if it cannot be displayed.

    The permission allows this tool for exactly this `subject`.

    A call needs approval each time if its `subject` contains a secret or is too long to read.
    """
    if not subject.grant or len(subject.grant) > MAX_SHOWN or bound.always is None:
        return None
    grant = f"{tool} {subject.grant}{bound.always}"
    is_whole = len(grant) <= MAX_GRANT and grant.isprintable()
    return grant if is_whole and mask_secrets(grant) == grant else None


def _preview(action: Action, subject: Subject) -> str | None:
    """Return the path, command or host of a call as it is shown; None if the call has none."""
    if action == "os":
        return None
    about = subject.host if action == "egress" else subject.shown
    return _showable(about) if about else None


def _showable(text: str) -> str:
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    shown = mask_secrets(shown)
    if len(shown) > MAX_SHOWN:
        shown = f"{shown[: MAX_SHOWN - 1]}\N{HORIZONTAL ELLIPSIS}"
    return shown


def _question(spec: ToolSpec, subject: Subject) -> str:
    shown = _showable(subject.shown)
    return f"May {spec.name} run? {shown}" if shown else f"May {spec.name} run?"
