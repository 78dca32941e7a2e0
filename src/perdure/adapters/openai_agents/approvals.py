"""Approvals that a paused run of the SDK waits for, as questions of the inbox, and their answers.

The state is stored before its questions: a process that dies in between leaves a state whose next
run is interrupted at the same calls, and asks again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

import perdure
import perdure.types
from perdure.adapters.openai_agents.items import arguments_of

if TYPE_CHECKING:
    from agents import RunState
    from agents.items import ToolApprovalItem

ALLOW: Final = "allow"
CHOICES: Final = (ALLOW, "deny")
"""The answers to a question of ours, by which it is known."""

_ENTRIES = 64
"""Messages in which the call that a question is about is looked for."""


class WantedApproval(msgspec.Struct, frozen=True):
    """A call that waits for an approval, and the agent that wants to make it."""

    agent: str
    call: perdure.ToolCallPart

    @property
    def digest(self) -> str:
        """A hash of the tool and the arguments."""
        told = msgspec.json.encode((self.agent, self.call.name, self.call.args))
        return hashlib.blake2b(told, digest_size=32).hexdigest()


def wanted_by(item: ToolApprovalItem) -> WantedApproval | None:
    """Return what `item` waits for; None for one without the id of a call."""
    id, name = item.call_id, item.qualified_name or item.name
    if not id or not name:
        return None
    call = perdure.tool_call(id, name, arguments_of(item.arguments or "{}"))
    return WantedApproval(item.agent.name, call)


def undecided(state: RunState[Any, Any] | None, text: str | None) -> list[WantedApproval]:
    """Return what `state`, whose JSON is `text`, waits for and the program has not decided."""
    if state is None or text is None:
        return []
    decided = _decided_calls(msgspec.json.decode(text).get("context") or {})
    wanted = [wanted_by(item) for item in state.get_interruptions()]
    return [each for each in wanted if each is not None and each.call.id not in decided]


def decide(state: RunState[Any, Any], answers: Mapping[str, perdure.types.Answer]) -> None:
    """Apply `answers`, by the ids of the calls, to what `state` waits for."""
    for item in state.get_interruptions():
        answer = answers.get(item.call_id or "")
        if answer is None:
            continue
        if answer.choice == ALLOW:
            state.approve(item)
        else:
            state.reject(item, rejection_message=answer.note)


async def open_questions(session: perdure.Session) -> dict[str, perdure.types.OpenQuestion]:
    """Return the open questions of `session` about calls of the SDK, by the ids of the calls."""
    found = [each for each in await session.questions() if _is_ours(each.question)]
    return {each.question.call_id or "": each for each in found}


def carried(
    wanted: Iterable[WantedApproval],
    before: Mapping[str, str],
    asked: Mapping[str, perdure.types.OpenQuestion],
) -> list[str]:
    """Return the calls of `wanted` that the questions in `asked` are about.

    `before` has the digests of the calls they were asked about.
    """
    return [
        each.call.id
        for each in wanted
        if each.call.id in asked and before.get(each.call.id) == each.digest
    ]


async def ask(session: perdure.Session, wanted: Sequence[WantedApproval]) -> None:
    """Ask about what is `wanted`."""
    messages = await session.path(last=_ENTRIES, kind="message") if wanted else []
    calls = {
        call.id: entry
        for entry in messages
        for call in (() if entry.message is None else entry.message.tool_calls)
    }
    for each in wanted:
        text = f"{each.agent} asks to run {each.call.name}"
        await session.ask(text, CHOICES, call=each.call, about=calls.get(each.call.id))


async def answers_in(
    session: perdure.Session, after: int, earlier: Iterable[str]
) -> dict[str, perdure.types.Answer]:
    """Return the answers to the questions asked after seq `after`, and to the `earlier` ones."""
    entries = [await session.entry(id) for id in earlier]
    entries += [entry async for entry in session.entries(after, kind="question")]
    found: dict[str, perdure.types.Answer] = {}
    for entry in entries:
        question = perdure.body_of(entry)
        if not isinstance(question, perdure.types.Question) or not _is_ours(question):
            continue
        if (answer := await session.answer_to(entry)) is not None:
            found[question.call_id or ""] = answer
    return found


def _is_ours(question: perdure.types.Question) -> bool:
    return question.topic == "program" and question.choices == CHOICES


def _decided_calls(context: Mapping[str, Any]) -> set[str]:
    """Return the calls that the program approved or rejected, by the `context` of a state."""
    told = [*cast("dict[str, Any]", context.get("approvals") or {}).values()]
    for name in ("function_tool_approvals", "hosted_mcp_approvals"):
        told += [each.get("decision") or each for each in context.get(name) or ()]
    found: set[str] = set()
    for record in told:
        for name in ("approved", "rejected"):
            ids = record.get(name)
            found.update(cast("list[str]", ids) if isinstance(ids, list) else ())
    return found
