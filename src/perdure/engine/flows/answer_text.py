"""The last answer of a turn, put together from the parts it was cut into. Pure.

A process that dies in the middle of an answer leaves a part of it; who takes the turn over has the
model go on where it stops. What an agent signals may stand in both.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.session.messages import Message, TextPart


class AnswerText(msgspec.Struct, frozen=True):
    """The text of an answer. `is_cut`: what comes next in the session goes on with it."""

    text: str = ""
    is_cut: bool = False

    def then(self, message: Message) -> AnswerText:
        """What was said once `message` was, too."""
        if message.role != "assistant":
            return self if message.role == "tool" else AnswerText()
        text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
        before = self.text if self.is_cut else ""
        return AnswerText(before + text, is_cut=message.stop_reason == "aborted")


def said_in(messages: Iterable[Message]) -> AnswerText:
    """What was said last in `messages`, the end of a session in order."""
    said = AnswerText()
    for message in messages:
        said = said.then(message)
    return said
