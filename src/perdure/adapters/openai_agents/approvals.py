"""Asks people for the approvals that a paused run of the SDK needs, with questions in the inbox.

Before a state is stored, earlier questions about calls that are not in the state are withdrawn.
After a state is stored, the questions about its calls are asked. If the process is killed before
the questions are asked, the next run from the stored state stops at the same calls and asks again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

import perdure
import perdure.types
from perdure.adapters.openai_agents.items import arguments_of
from perdure.errors import ConfigError

if TYPE_CHECKING:
    from agents import RunState
    from agents.items import ToolApprovalItem

ALLOW: Final = "allow"
CHOICES: Final = (ALLOW, "deny")
"""The possible answers to a question that this adapter asks."""

SUPPORTED: Final = "openai-agents>=0.24,<0.25"
"""The releases of the SDK that the extra installs: they have the private attributes used here."""

_DECISIONS: Final = ("approvals", "function_tool_approvals", "hosted_mcp_approvals")
"""Fields in the context of a stored state that contain decisions of the program or of a person."""

_ENTRIES = 64
"""Number of newest messages that are searched for the call that a question is about."""


class WantedApproval(msgspec.Struct, frozen=True):
    """A call that waits for an approval, and the agent that wants to make the call."""

    agent: str
    call: perdure.ToolCallPart

    @property
    def text(self) -> str:
        """The text of the question about the call."""
        return f"{self.agent} asks to run {self.call.name}"

    @property
    def digest(self) -> str:
        """A hash of the question's text, call id, tool and arguments."""
        return _hash((self.text, self.call.id, self.call.name, _hash(self.call.args)))


def wanted_by(item: ToolApprovalItem) -> WantedApproval | None:
    """Return the approval that `item` waits for; None if it lacks a call id or a tool name."""
    id, name = item.call_id, item.qualified_name or item.name
    if not id or not name:
        return None
    call = perdure.tool_call(id, name, arguments_of(item.arguments or "{}"))
    return WantedApproval(item.agent.name, call)


def undecided(state: RunState[Any, Any] | None) -> list[WantedApproval]:
    """Return the approvals that `state` waits for and that the program has not decided."""
    items = [] if state is None else state.get_interruptions()
    wanted = [(item, wanted_by(item)) for item in items]
    return [each for item, each in wanted if each and _decision(state, item) is None]


def decide(state: RunState[Any, Any], answers: Mapping[str, perdure.types.Answer]) -> None:
    """Apply `answers`, keyed by question digest, to the approvals that `state` waits for."""
    for item in state.get_interruptions():
        wanted = wanted_by(item)
        answer = None if wanted is None else answers.get(wanted.digest)
        if answer is None:
            continue
        if answer.choice == ALLOW:
            state.approve(item)
        else:
            state.reject(item, rejection_message=answer.note)


async def asked_about(
    session: perdure.Session, state: perdure.Entry, data: Mapping[str, Any]
) -> dict[str, list[perdure.Entry]]:
    """Return the questions about the calls that the stored `state` waits for, by digest.

    `data` is the content of the log note that stores the state. The result includes closed
    questions.
    """
    found: dict[str, list[perdure.Entry]] = {digest: [] for digest in data.get("calls", ())}
    entries = [await session.entry(id) for id in data.get("questions", ())]
    entries += [entry async for entry in session.entries(state.seq, kind="question")]
    for entry in entries:
        if (digest := _digest_of(entry)) in found:
            found[digest].append(entry)
    return found


async def ask(session: perdure.Session, wanted: Sequence[WantedApproval]) -> None:
    """Ask a question about each `wanted` approval."""
    messages = await session.path(last=_ENTRIES, kind="message") if wanted else []
    calls = {
        call.id: entry
        for entry in messages
        for call in (() if entry.message is None else entry.message.tool_calls)
    }
    for each in wanted:
        await session.ask(each.text, CHOICES, call=each.call, about=calls.get(each.call.id))


async def answers_to(
    session: perdure.Session, asked: Mapping[str, Sequence[perdure.Entry]]
) -> dict[str, perdure.types.Answer]:
    """Return the answers to the questions in `asked`; a denial overrides other answers."""
    found: dict[str, perdure.types.Answer] = {}
    for digest, entries in asked.items():
        for entry in entries:
            answer = await session.answer_to(entry)
            if answer is not None and (digest not in found or answer.choice != ALLOW):
                found[digest] = answer
    return found


async def is_answer_unused(session: perdure.Session, question: perdure.Entry) -> bool:
    """Return whether `question` has an answer and its call has no result after the question.

    Results before the question are ignored, because they can belong to an earlier run that used the
    same call id.
    """
    asked = perdure.body_of(question)
    if not isinstance(asked, perdure.types.Question) or await session.answer_to(question) is None:
        return False
    async for entry in session.entries(question.seq, kind="message"):
        for part in () if entry.message is None else entry.message.parts:
            if isinstance(part, perdure.ToolResultPart) and part.call_id == asked.call_id:
                return False
    return True


def _digest_of(entry: perdure.Entry) -> str:
    """Return the `WantedApproval.digest` of `entry`; "" if it is no question of this adapter."""
    question = perdure.body_of(entry)
    if not isinstance(question, perdure.types.Question) or question.topic != "program":
        return ""
    if question.choices != CHOICES:
        return ""
    return _hash((question.text, question.call_id, question.tool, question.args_hash))


def _hash(value: object) -> str:
    """Return a hash of `value`; the hash of arguments equals `Question.args_hash`."""
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=32).hexdigest()


def without_decisions(text: str) -> str:
    """Return the stored state `text` without approvals and rejections, even in nested agents."""
    try:
        state = json.loads(text)
    except ValueError:  # the SDK rejects it, too
        return text
    nested: list[object] = [state]
    while nested:
        value = nested.pop()
        if isinstance(value, list):
            nested += cast("list[object]", value)
            continue
        if not isinstance(value, dict):
            continue
        fields = cast("dict[str, object]", value)
        nested += fields.values()
        context = fields.get("context")
        if "$schemaVersion" in fields and isinstance(context, dict):
            for name in _DECISIONS:
                cast("dict[str, object]", context).pop(name, None)
    return json.dumps(state)


def _decision(state: Any, item: ToolApprovalItem) -> bool | None:
    """Return the program's decision about `item`, or about all calls of its tool.

    Raises: ConfigError if the SDK's release lacks the private attributes used here.
    """
    # A nested agent's state holds the decisions about its calls.
    owner, pending = _private(state, "_find_nested_approval_state")(item) or (state, item)
    return _private(owner, "_context").get_approval_status(
        pending.tool_name or "",
        pending.call_id,
        tool_namespace=pending.tool_namespace,
        existing_pending=pending,
    )


def _private(state: Any, name: str) -> Any:
    """Return the private attribute `name` of `state`, which has no public equivalent."""
    try:
        return getattr(state, name)
    except AttributeError as error:
        raise ConfigError(
            f"this release of openai-agents has no RunState.{name}, which stored approvals need: "
            f"pip install '{SUPPORTED}'"
        ) from error
