"""The request bodies of the API.

Field names are camelCase; unknown fields are rejected.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any, Literal

import msgspec

from perdure.errors import WrongArgument
from perdure.session.media.inline import InlineMedia, media
from perdure.session.messages import InFlightMessage, Message, user

NewId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
"""An id that a client chooses for a session."""


class Input(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base class of the request bodies."""


class NewSession(Input, frozen=True, kw_only=True):
    """The body of a request for a new session.

    Without an `agent`, the server uses its only agent.
    """

    id: NewId | None = None
    agent: str | None = None
    title: str | None = None
    subject: str | None = None
    metadata: dict[str, Any] | None = None


class NewContent(Input, frozen=True, kw_only=True):
    """An image or other media content of a message. `data` is base64."""

    data: str
    mime_type: str | None = None
    name: str | None = None

    def medium(self) -> InlineMedia:
        """Return the media content as a part of a message. Raises: WrongArgument."""
        try:
            data = b64decode(self.data, validate=True)
        except ValueError as error:
            raise WrongArgument("data of contents must be base64") from error
        return media(data, self.mime_type, self.name)


class NewMessage(Input, frozen=True, kw_only=True):
    """A message for a session; the session is created if it does not exist yet.

    `contents` are images, audio, video or PDF files, which follow the text; with `contents`, the
    text may be empty. `if_running` defines what happens while a turn runs: the message is queued as
    steering, or it is rejected with 409.
    """

    text: str
    contents: list[NewContent] = []
    session_id: NewId | None = None
    agent: str | None = None
    subject: str | None = None
    title: str | None = None
    if_running: Literal["queue", "reject"] = "queue"

    def said(self) -> Message | InFlightMessage:
        """Return the message.

        Raises: WrongArgument if the message is empty, or if one of its contents is not allowed in
        messages.
        """
        held = [each.medium() for each in self.contents]
        if not held and not self.text.strip():
            raise WrongArgument("a message needs text or contents")
        return user(self.text, *held) if self.text or not held else user(*held)


class Renamed(Input, frozen=True, kw_only=True):
    """The new title of a session; null removes the title."""

    title: str | None


class Answer(Input, frozen=True, kw_only=True):
    """An answer to a question: one of its choices, or text if it has no choices."""

    answer: str
    note: str | None = None


class BranchTo(Input, frozen=True, kw_only=True):
    """Where the conversation continues: after `entry`, or from the beginning if `entry` is null.

    With `expected_leaf`, the move fails if the branch now ends at another entry. With `summary`,
    the agent's model summarizes the abandoned branch.
    """

    entry: str | None
    expected_leaf: str | msgspec.UnsetType | None = msgspec.UNSET
    summary: bool = False


class NewFork(Input, frozen=True, kw_only=True):
    """A request to fork: the path to the entry `at`, or the whole session."""

    at: str | None = None
    id: NewId | None = None
    title: str | None = None
    subject: str | None = None
    metadata: dict[str, Any] | None = None


class Labelled(Input, frozen=True, kw_only=True):
    """The new label of an entry; null removes the label."""

    text: str | None


class Focus(Input, frozen=True, kw_only=True):
    """The instructions for a summary: what it must keep."""

    focus: str | None = None


class Uncompacted(Input, frozen=True, kw_only=True):
    """The compaction to undo; null means the newest."""

    compaction: str | None = None


class Reason(Input, frozen=True, kw_only=True):
    """The reason why a session is ended."""

    reason: str | None = None


class Resumed(Input, frozen=True, kw_only=True):
    """The agent that continues a session; null means the session's own agent."""

    agent: str | None = None


class Added(Input, frozen=True, kw_only=True):
    """A message to add to a running turn."""

    text: str


class NewFact(Input, frozen=True, kw_only=True):
    """A fact to remember."""

    text: str
    subject: str | None = None
    agent: str | None = None
    sources: list[str] = []


class Correction(Input, frozen=True, kw_only=True):
    """The new text of a fact."""

    text: str


class SigningIn(Input, frozen=True, kw_only=True):
    """A one-time code, or a token, for signing in."""

    code: str | None = None
    token: str | None = None
