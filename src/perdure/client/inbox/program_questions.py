"""Questions that a program asks outside a turn; an answer or the program itself closes them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from perdure.client.conversation.append import PreparedWrite, SessionWriter
from perdure.client.conversation.authority import is_in_force
from perdure.client.inbox.answer import closing_of
from perdure.client.reads import EntryRef
from perdure.client.session_fields import require_text
from perdure.engine.turns.rules.questions import args_hash
from perdure.errors import HeadConflict, InvalidEntry, WrongArgument
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.messages import ToolCallPart
from perdure.session.notes import PROGRAM, Answer, Question, QuestionWithdrawn
from perdure.stores.protocol import Write
from perdure.tools.approval import shown_arguments


async def ask(
    writer: SessionWriter,
    text: str,
    choices: Sequence[str],
    call: ToolCallPart | None,
    about: EntryRef | None,
) -> Entry:
    """Implement `Session.ask`."""
    writer.require_session("a question")
    require_text("text", text)
    if not text.strip():
        raise WrongArgument("a question has a text", argument="text")
    if any(not choice.strip() for choice in choices) or len(set(choices)) < len(choices):
        raise WrongArgument("choices are different texts, none blank", argument="choices")
    question = Question(PROGRAM, text, tuple(choices))
    if call is not None:
        question = msgspec.structs.replace(
            question,
            call_id=call.id,
            args_hash=args_hash(call.args),
            tool=call.name,
            arguments=shown_arguments(call.args),
        )
    target = None if about is None else (await writer.reader.entry(about)).id
    await writer.reader.backing.flush()  # an inbox has no questions of drafts
    return await writer.note(question, target)


async def withdraw(writer: SessionWriter, question: EntryRef) -> Entry | None:
    """Implement `Session.withdraw`."""
    asking = await _asked(writer, question)
    while True:
        head = (await writer.reader.look()).head
        if await closing_of(writer.store, asking) is not None:
            return None
        new = new_side(QuestionWithdrawn("cancelled"), asking.id)
        write = Write(stream=writer.reader.id, entries=(new,), expected_head=head)
        with suppress(HeadConflict):
            return (await writer.commit(PreparedWrite(write)))[0]


async def answer_to(writer: SessionWriter, question: EntryRef) -> Answer | None:
    """Implement `Session.answer_to`."""
    asking = await _asked(writer, question)
    closing = await closing_of(writer.store, asking)
    if closing is None or not await is_in_force(writer.store, closing):
        return None
    body = body_of(closing)
    return body if isinstance(body, Answer) else None


async def _asked(writer: SessionWriter, question: EntryRef) -> Entry:
    """Return the entry of `question` if a program asked it. Raises: EntryNotFound, InvalidEntry."""
    asking = await writer.reader.entry(question)
    body = body_of(asking)
    if isinstance(body, Question) and body.topic == PROGRAM and asking.stream == writer.reader.id:
        return asking
    reason = f"{asking.id} is not a question that a program asked in this session"
    raise InvalidEntry(reason, told=reason)
