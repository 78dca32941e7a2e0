"""The last answer of a turn, joined from its parts if it was interrupted. Pure.

A process that dies during an answer leaves a partial answer. The process that takes over lets the
model continue the partial answer. The signal at the end of a continued answer can therefore begin
in one part and end in the other part.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.session.messages import Message, TextPart


class AnswerText(msgspec.Struct, frozen=True):
    """The text of an answer.

    If `is_cut` is True, the answer is incomplete, and the session's next message continues the
    answer.
    """

    text: str = ""
    is_cut: bool = False

    def then(self, message: Message) -> AnswerText:
        """Return the answer so far, continued or replaced by `message`."""
        if message.role != "assistant":
            return self if message.role == "tool" else AnswerText()
        text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
        before = self.text if self.is_cut else ""
        return AnswerText(before + text, is_cut=message.stop_reason == "aborted")


def said_in(messages: Iterable[Message]) -> AnswerText:
    """Return the last answer in `messages`, which are a session's newest messages, in order."""
    said = AnswerText()
    for message in messages:
        said = said.then(message)
    return said
