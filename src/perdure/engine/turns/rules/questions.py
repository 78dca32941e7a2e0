"""The questions that a turn asks people; each question is bound to its exact subject."""

from __future__ import annotations

import hashlib
from typing import cast

import msgspec

from perdure.engine.turns.rules.scribe import Scribe
from perdure.models.prices import in_dollars
from perdure.secrets.mask import mask_secrets
from perdure.session.codec import encode
from perdure.session.ledger import ToolStarted
from perdure.session.messages import ToolCallPart
from perdure.session.notes import Question
from perdure.tools.approval import Ruling, digest_of, shown_arguments

_SHOWN = 80
"""Maximum characters of the arguments in the text of a question."""

_NOT_HERE = "The process that asks does not have the tool; only a process that has it can run it. "


def args_hash(args: dict[str, object]) -> str:
    """Return the hash that binds a question to the exact arguments of a call."""
    return hashlib.blake2b(encode(args), digest_size=32).hexdigest()


def ask_how_to_go_on(scribe: Scribe, call_seq: int) -> None:
    """Ask how the turn continues, because the process died during an answer."""
    question = Question(
        topic="interrupted",
        text="perdure was stopped in the middle of an answer. How shall the turn go on?",
        choices=("retry", "continue", "rollback"),
    )
    scribe.side(question, call_seq)


def ask_about_tool(scribe: Scribe, seq: int, started: ToolStarted, *, is_here: bool = True) -> None:
    """Ask about a tool that ran when its process died, or when its connection broke.

    `is_here` is whether this process has the tool.
    """
    shown = shown_arguments(started.input)
    about = _short_argument(shown)
    question = Question(
        topic="unknown_outcome",
        text=(
            f"{started.tool}{f' ({about})' if about else ''} was cut off while it ran; it may have "
            f"taken effect. {'' if is_here else _NOT_HERE}"
            "retry: run the tool again; skip: tell the model that the outcome is unknown; "
            "done: tell the model that the tool took effect (add a note with its result)."
        ),
        choices=("retry", "skip", "done"),
        call_id=started.id,
        args_hash=args_hash(started.input),
        tool=started.tool,
        arguments=shown,
    )
    scribe.side(question, seq)


def _short_argument(shown: dict[str, object]) -> str:
    """Return one short line: the first text argument, then all texts in list arguments."""
    first = next((text for text in shown.values() if isinstance(text, str)), "")
    lists = (cast("list[object]", each) for each in shown.values() if isinstance(each, list))
    words = (word for each in lists for word in each if isinstance(word, str))
    line = " ".join(" ".join((first, *words)).split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}\N{HORIZONTAL ELLIPSIS}"


def approval_digest(question: Question) -> str:
    """Return the hash of what an answer approves: the arguments and bound facts of `question`."""
    return digest_of(question.args_hash, question.bound)


def ask_for_approval(scribe: Scribe, call: ToolCallPart, ruling: Ruling) -> None:
    """Ask a person to approve that `call` begins, because a policy requires this approval."""
    bound = ruling.bound
    usual = ("allow", "always", "deny") if ruling.grant else ("allow", "deny")
    question = Question(
        topic="approval",
        text=ruling.text,
        choices=ruling.choices or usual,
        call_id=call.id,
        args_hash=args_hash(call.args),
        grant=ruling.grant,
        tool=call.name,
        action=ruling.action,
        preview=ruling.preview,
        free_in=ruling.free_in or None,
        arguments=shown_arguments(call.args),
        bound=None if bound is None else dict(bound.facts),
        diff=None if bound is None or bound.diff is None else mask_secrets(bound.diff),
    )
    scribe.side(question, scribe.state.answer_id)


def ask_again_elsewhere(scribe: Scribe, question: Question) -> None:
    """Ask `question`, an allowed approval, again, because this process does not have the tool."""
    text = f"{_NOT_HERE}{question.text.removeprefix(_NOT_HERE)}"
    again = msgspec.structs.replace(question, text=text)
    scribe.side(again, scribe.state.answer_id)


def ask_to_spend(scribe: Scribe, model: str, limit: int, estimate: int | None, step: int) -> None:
    """Ask to spend more than `limit`; `step` is the proposed increase of the limit.

    Units: the amounts are micro-cents; `estimate` is None if the price of `model` is unknown.
    """
    spent = scribe.state.spent.cost_microcents
    if estimate is None:
        raised = limit
        text = (
            f"The price of {model} is unknown, so the session's limit of {in_dollars(limit)} "
            "cannot be kept. continue: call it in this turn all the same; stop: end the turn."
        )
    else:
        raised = max(limit + step, spent + estimate)
        text = (
            f"The next call of {model} may cost up to {in_dollars(estimate)} (its whole request "
            f"and the longest allowed answer); the session has spent {in_dollars(spent)} of "
            f"{in_dollars(limit)}. continue: it may spend up to {in_dollars(raised)}; "
            "stop: end the turn."
        )
    question = Question(
        topic="budget",
        text=text,
        choices=("continue", "stop"),
        grant=model if estimate is None else None,
        limit_microcents=raised,
    )
    scribe.side(question, scribe.state.turn_seq)
