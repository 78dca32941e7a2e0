"""What a person says, looked through for credentials before it is written down for good."""

from __future__ import annotations

import logging

import msgspec

from perdure.secrets.pasted import PastePolicy, pasted
from perdure.session.messages import Message, Part, TextPart, user

Said = str | Message
"""What a person says: text, or a message of role ``user``."""

_PLACE = "the message"
_log = logging.getLogger(__name__)


def message_of(said: Said, policy: PastePolicy = "warn") -> Message:
    """`said` as it is to be written under `policy`; a warning goes to the log of the program.

    Raises: SecretPasted under ``refuse``; ValueError for a message of another role; TypeError for
    what is neither text nor a message.
    """
    message = user(said) if isinstance(said, str) else said
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance] - a checker would have told
        raise TypeError(f"send text, or user('...'), not {type(said).__name__}")
    if message.role != "user":
        raise ValueError(
            f"send what a person says, such as user('...'); to add a message of role "
            f"{message.role} to the conversation, append it to the session"
        )
    parts: list[Part] = []
    kinds: set[str] = set()
    for part in message.parts:
        if isinstance(part, TextPart):
            found = pasted(part.text, policy, _PLACE)
            kinds.update(found.kinds)
            parts.append(part if found.text == part.text else TextPart(found.text))
        else:
            parts.append(part)
    if kinds and policy == "warn":
        _log.warning("%s holds what looks like a credential (%s)", _PLACE, ", ".join(sorted(kinds)))
    return msgspec.structs.replace(message, parts=tuple(parts))


def credentials_in(said: Said) -> tuple[str, ...]:
    """The kinds of credentials that `said` seems to hold, sorted, each once."""
    message = user(said) if isinstance(said, str) else said
    texts = (part.text for part in message.parts if isinstance(part, TextPart))
    return tuple(sorted({kind for text in texts for kind in pasted(text, "warn", _PLACE).kinds}))
