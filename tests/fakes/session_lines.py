"""Lines of session files as the codecs of pi and Operator write them."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.codecs.fields import Fields
from perdure.codecs.protocol import Codec, WriteContext
from perdure.session.ids import EntryId


def header_line(codec: Codec, session: str, at: int, cwd: str | None) -> bytes:
    return codec.line(codec.header(session, at, cwd, None))


def record_line(codec: Codec, record: Fields, id: str, parent: str | None, at: int) -> bytes:
    return codec.line(codec.placed(record, id, parent, at))


def writing_of(ids: Mapping[EntryId, str], media: Mapping[str, bytes], own: str) -> WriteContext:
    """Return a context for writing records; `ids` maps each entry to the id of its only record."""

    def no_model(_: EntryId) -> None:
        return None

    return WriteContext(own=own, first=ids.get, last=ids.get, blob=media.get, model=no_model)
