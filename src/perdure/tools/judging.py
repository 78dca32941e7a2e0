"""Whether a call may run, must be asked for, or never runs: everything before the effect.

Pure, in the order that security needs: effective arguments, validation, policy, approval. What is
doomed is refused before anybody is asked. The one approval engine; a mode is a `RuleSet` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from perdure.errors import PerdureError, ToolDenied, ToolError
from perdure.secrets.masking import MASK, masked
from perdure.session.messages import ToolCallPart
from perdure.tools.permissions import ApprovalMode, Permissions
from perdure.tools.registry import ToolRegistry
from perdure.tools.spec import Action, Subject, ToolSpec

Decision = Literal["run", "ask", "refuse"]

MAX_SHOWN = 500

_NEVER_NAMES = frozenset(("__proto__", "prototype", "constructor", "__class__", "__dict__"))


class RuleSet(msgspec.Struct, frozen=True):
    """What is decided about each action. `honours_grants`: an earlier "always" counts."""

    actions: Mapping[Action, Decision]
    honours_grants: bool = True


RULE_SETS: Mapping[ApprovalMode, RuleSet] = {
    "ask": RuleSet({"fs_write": "ask", "process": "ask", "egress": "ask", "os": "ask"}),
    "plan": RuleSet(
        {"fs_write": "refuse", "process": "refuse", "egress": "refuse", "os": "refuse"},
        honours_grants=False,
    ),
    "accept-edits": RuleSet({"fs_write": "run", "process": "ask", "egress": "ask", "os": "ask"}),
    "auto": RuleSet({"fs_write": "run", "process": "run", "egress": "run", "os": "run"}),
}
"""The modes of an agent. An action that a rule set does not name is refused."""


class Ruling(msgspec.Struct, frozen=True):
    """What was decided about a call, and why.

    `text` asks the person, or tells the model why not. `grant` is what "always" would allow.
    `error_code` is there for what is refused; `action` and `preview`, the path, the command or the
    host it is about, for what is asked. `choices` are a person's answers where they are others than
    allow, deny and always; `free_in` the modes of a flow's consent in which nobody is asked.
    """

    decision: Decision
    text: str = ""
    grant: str | None = None
    error_code: str | None = None
    action: Action | None = None
    preview: str | None = None
    choices: tuple[str, ...] = ()
    free_in: tuple[str, ...] = ()


def effective_args(spec: ToolSpec, args: Mapping[str, object]) -> Mapping[str, object]:
    """`args` without names that only the configuration gives, and names that are no arguments."""
    dropped = spec.config_only | _NEVER_NAMES
    if dropped.isdisjoint(args):
        return args
    return {name: value for name, value in args.items() if name not in dropped}


Judge = Callable[[ToolCallPart, frozenset[str]], Ruling]
"""Says whether a call may run, given the grants of the turn so far."""


def judge_of(
    registry: ToolRegistry,
    permissions: Permissions,
    granted: frozenset[str] = frozenset(),
    rules: RuleSet | None = None,
) -> Judge:
    """The judge of turns that have the tools of `registry` under `permissions`.

    `granted` is what people allowed for the whole session before; `rules` as in `judged`.
    """

    def judge(call: ToolCallPart, in_turn: frozenset[str]) -> Ruling:
        if call.name not in registry.names:
            return Ruling("run")  # calls of unknown tools are answered elsewhere
        return judged(registry.get(call.name), call.args, permissions, granted | in_turn, rules)

    return judge


def judged(
    spec: ToolSpec,
    args: Mapping[str, object],
    permissions: Permissions,
    granted: frozenset[str] = frozenset(),
    rules: RuleSet | None = None,
) -> Ruling:
    """What is done about a call of `spec` with `args`, given the grants of the session.

    `rules` are those of the agent's mode unless others are given.
    """
    if spec.action is None:
        return Ruling("run")
    try:
        subject = _examined(spec, args, permissions)
    except PerdureError as error:
        reason = error.reason if isinstance(error, ToolError) else str(error)
        return Ruling("refuse", f"{spec.name}: {masked(reason)}", error_code=error.code)
    chosen = rules or RULE_SETS[permissions.approval]
    return _decided(spec, spec.action, subject, chosen, granted)


def _examined(spec: ToolSpec, args: Mapping[str, object], permissions: Permissions) -> Subject:
    """What the call is about, once its arguments fit and the policy has nothing against it.

    Raises: ToolError.
    """
    given = effective_args(spec, args)
    if spec.arguments is not None:
        given = spec.arguments(given)
    return spec.examine(given, permissions) if spec.examine is not None else Subject("")


def _decided(
    spec: ToolSpec, action: Action, subject: Subject, rules: RuleSet, granted: frozenset[str]
) -> Ruling:
    decision = rules.actions.get(action, "refuse")
    if decision == "refuse":
        reason = "nothing is changed, run or sent in this mode; say what you would do instead"
        return Ruling("refuse", f"{spec.name}: {reason}", error_code=ToolDenied.code)
    grant = None if spec.is_gated else grant_of(spec.name, subject)
    if spec.is_gated or decision == "ask":
        if grant is not None and rules.honours_grants and grant in granted:
            return Ruling("run")
        offered = grant if rules.honours_grants else None
        preview = _preview(action, subject)
        return Ruling("ask", _question(spec, subject), offered, action=action, preview=preview)
    return Ruling("run")


def grant_of(tool: str, subject: Subject) -> str | None:
    """What "always" allows: this tool for exactly this; None where nothing can be shown whole.

    What holds a secret, or is too long to be read, is asked for each time.
    """
    if not subject.grant or len(subject.grant) > MAX_SHOWN or MASK in masked(subject.grant):
        return None
    return f"{tool} {subject.grant}"


def _preview(action: Action, subject: Subject) -> str | None:
    """The path, the command or the host, as far as it may be shown; None where there is none."""
    if action == "os":
        return None
    about = subject.host if action == "egress" else subject.shown
    return _showable(about) if about else None


def _showable(text: str) -> str:
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    shown = masked(shown)
    if len(shown) > MAX_SHOWN:
        shown = f"{shown[: MAX_SHOWN - 1]}\N{HORIZONTAL ELLIPSIS}"
    return shown


def _question(spec: ToolSpec, subject: Subject) -> str:
    shown = _showable(subject.shown)
    return f"May {spec.name} run? {shown}" if shown else f"May {spec.name} run?"
