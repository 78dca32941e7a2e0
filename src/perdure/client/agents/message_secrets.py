"""Scans a person's messages for credentials before the messages are stored."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from perdure.errors import WrongArgument
from perdure.secrets.pasted_keys import PastePolicy, apply_paste_policy
from perdure.session.argument_checks import check_whole
from perdure.session.messages import Message, Part, TextPart, user

Said = str | Message
"""What a person says: text, or a message of role ``user``."""

_PLACE = "the message"
_LONG = 65_536
"""Longer messages are searched for credentials in a thread. Units: characters."""

_log = logging.getLogger(__name__)


def message_of(said: Said, policy: PastePolicy = "warn") -> Message:
    """Return `said` as a message, scanned for credentials; the policy ``warn`` logs a warning.

    A long message is not scanned in this function; `screen_message` scans a long message before the
    message is stored.
    Raises: SecretPasted for a credential if `policy` is ``refuse``. Raises WrongArgument for a
    message of another role, a message with neither text nor media, or a value that is neither text
    nor a valid message.
    """
    message = user(said) if isinstance(said, str) else said
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance] - a checker would have told
        raise WrongArgument(f"send text, or user('...'), not {type(said).__name__}")
    if message is said:  # a message made from text is valid
        check_whole(message, "Message")
    if message.role != "user":
        raise WrongArgument(
            f"send what a person says, such as user('...'); to add a message of role "
            f"{message.role} to the conversation, append it to the session"
        )
    if not any(not isinstance(part, TextPart) or part.text.strip() for part in message.parts):
        raise WrongArgument("the message is empty: send text or media", argument="said")
    return message if _is_long(message) else _screened(message, policy)


async def screen_message(message: Message, policy: PastePolicy) -> Message:
    """Apply `policy` to `message`, the result of `message_of`.

    Long messages are scanned in a thread.

    Raises: SecretPasted for a credential if `policy` is ``refuse``.
    """
    if not _is_long(message):
        return message
    return await asyncio.to_thread(_screened, message, policy)


def _is_long(message: Message) -> bool:
    return sum(len(part.text) for part in message.parts if isinstance(part, TextPart)) > _LONG


def _screened(message: Message, policy: PastePolicy) -> Message:
    parts: list[Part] = []
    kinds: set[str] = set()
    for part in message.parts:
        if isinstance(part, TextPart):
            found = apply_paste_policy(part.text, policy, _PLACE)
            kinds.update(found.kinds)
            parts.append(part if found.text == part.text else TextPart(found.text))
        else:
            parts.append(part)
    if kinds and policy == "warn":
        _log.warning("%s holds what looks like a credential (%s)", _PLACE, ", ".join(sorted(kinds)))
    return msgspec.structs.replace(message, parts=tuple(parts))


def credentials_in(said: Said) -> tuple[str, ...]:
    """Return the kinds of credentials in `said`, sorted, without repeats."""
    message = user(said) if isinstance(said, str) else said
    texts = (part.text for part in message.parts if isinstance(part, TextPart))
    return tuple(
        sorted({kind for text in texts for kind in apply_paste_policy(text, "warn", _PLACE).kinds})
    )
