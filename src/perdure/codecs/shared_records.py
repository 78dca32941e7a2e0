"""Records that pi and Operator both have under different names; one reader for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from perdure.codecs.fields import (
    Fields,
    count_in,
    flag_in,
    name_in,
    object_in,
    text_in,
    texts_in,
)
from perdure.codecs.media import Media
from perdure.codecs.protocol import Said, custom_body, reference, unknown_record, unreadable_message
from perdure.codecs.shared_keys import model_name, title_in
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import Message, Part, Role, Usage
from perdure.session.notes import Label

Reader = Callable[[Fields, Media], Said | None]
"""Decodes a record of one type; returns None to store it like a record of an unknown type."""


class Keys(msgspec.Struct, frozen=True):
    """The names that one of the programs gives to the fields of records.

    `envelope` contains the keys that every record has.
    """

    envelope: tuple[str, ...]
    custom_type: str
    target: str
    provider: str
    model: str
    thinking_level: str
    tokens_before: str
    first_kept: str
    from_hook: str
    from_id: str
    read_files: str
    modified_files: str


class SharedRecords(msgspec.Struct, frozen=True):
    """Reads records in the format `format`, if pi and Operator share the type of the record.

    `usage_of` reads the usage in a record. If a message has a role that the program does not have,
    perdure writes it as a ``custom_message`` record. `shown` maps the types of ``custom_message``
    records to the roles.
    """

    format: str
    keys: Keys
    usage_of: Callable[[Fields | None], Usage | None]
    shown: Mapping[str, Role]

    def said_by(self, readers: Mapping[str, Reader], fields: Fields, media: Media) -> Said:
        """Return the content of the record `fields`; an unknown record becomes a custom entry."""
        read = readers.get(text_in(fields, "type") or "")
        said = None if read is None else read(fields, media)
        return unknown_record(self.format, fields, self.keys.envelope) if said is None else said

    def readers(self) -> dict[str, Reader]:
        """Return the reader of each shared record type."""
        return {
            "compaction": lambda fields, _: self.compaction(fields),
            "branch_summary": self._branch_summary,
            "model_change": self._model_change,
            "thinking_level_change": self._thinking_change,
            "custom": lambda fields, _: self.custom(fields),
            "label": self._label,
            "session_info": lambda fields, _: Said(title_in(fields)),
        }

    def _thinking_change(self, fields: Fields, _media: Media) -> Said:
        return Said(ThinkingChange(text_in(fields, self.keys.thinking_level) or "off"))

    def _model_change(self, fields: Fields, _media: Media) -> Said | None:
        keys = self.keys
        model = model_name(name_in(fields, keys.provider), name_in(fields, keys.model))
        return Said(ModelChange(model)) if model else None

    def _label(self, fields: Fields, _media: Media) -> Said:
        return Said(Label(name_in(fields, "label")), about=name_in(fields, self.keys.target))

    def _branch_summary(self, fields: Fields, _media: Media) -> Said:
        files, keys = object_in(fields, "details") or {}, self.keys
        body = BranchSummary(
            summary=text_in(fields, "summary") or "",
            read_files=texts_in(files, keys.read_files),
            modified_files=texts_in(files, keys.modified_files),
            usage=self.usage_of(object_in(fields, "usage")),
        )
        return Said(body, references=reference("from_id", fields, keys.from_id))

    def compaction(self, fields: Fields, retained: tuple[Message, ...] | None = None) -> Said:
        """Return the content of a ``compaction`` record that retained the messages `retained`."""
        files, keys = object_in(fields, "details") or {}, self.keys
        body = Compaction(
            summary=text_in(fields, "summary") or "",
            tokens_before=count_in(fields, keys.tokens_before) or None,
            reason="hook" if flag_in(fields, keys.from_hook) else "import",
            read_files=texts_in(files, keys.read_files),
            modified_files=texts_in(files, keys.modified_files),
            usage=self.usage_of(object_in(fields, "usage")),
            retained=retained,
        )
        return Said(body, references=reference("first_kept", fields, keys.first_kept))

    def type_of(self, fields: Fields) -> str:
        """Return the type of a ``custom`` or ``custom_message`` record."""
        return name_in(fields, self.keys.custom_type) or f"{self.format}:custom"

    def custom(self, fields: Fields) -> Said:
        """Return the content of a ``custom`` record."""
        return Said(custom_body(self.format, self.type_of(fields), fields.get("data")))

    def custom_message(self, fields: Fields, parts: tuple[Part, ...] | None) -> Said:
        """Return the content of a ``custom_message`` record with the parts `parts`."""
        if parts is None:
            return unreadable_message(self.format, fields.get("content"), None, is_known=True)
        custom_type = self.type_of(fields)
        role = self.shown.get(custom_type)
        if role is not None:
            return Said(Message(role, parts))
        is_displayed = flag_in(fields, "display", default=True)
        return Said(CustomMessage(custom_type, parts, is_displayed, details=fields.get("details")))
