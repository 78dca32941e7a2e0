"""Create the lines of a session for pi or Operator with the codec of that format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from perdure.codecs.fields import Fields
from perdure.codecs.protocol import Codec, WriteContext
from perdure.codecs.style import shallow
from perdure.interop.formats.losses import DEEP, Losses
from perdure.session.codec import Body
from perdure.session.entries import Entry
from perdure.session.ids import EntryId


class RecordLines:
    """Creates the lines of an exported file with `codec`.

    `last` maps each entry to the id of its last record in the file.
    """

    def __init__(
        self, codec: Codec, writing: WriteContext, last: dict[EntryId, str], lost: Losses
    ) -> None:
        self._codec = codec
        self._writing = writing
        self._last = last
        self._lost = lost

    def line(self, record: Fields, name: str, parent: str | None, at: int) -> bytes:
        """Return the line of `record`.

        Data that is nested too deeply becomes text and counts as a loss.
        """
        line = self._codec.line(self._codec.placed(record, name, parent, at))
        flat = shallow(line)
        if flat is None:
            return line
        self._lost.add(DEEP)
        return self._codec.line(flat)

    def of_entry(
        self, entry: Entry, body: Body, own: str, name_of: Callable[[EntryId, int], str]
    ) -> list[bytes]:
        """Return the lines of `entry`.

        The first record of `entry` has the id `own`; `name_of` gives the ids of the other records.
        """
        parent = None if entry.parent_id is None else self._last.get(entry.parent_id)
        lines: list[bytes] = []
        writing = msgspec.structs.replace(self._writing, own=own)
        for ordinal, record in enumerate(self._codec.records(entry, body, writing)):
            name = own if ordinal == 0 else name_of(entry.id, ordinal)
            lines.append(self.line(record, name, parent, entry.at))
            parent = self._last[entry.id] = name
        return lines


def changed_labels(
    newest: Mapping[EntryId, Entry],
    now: Mapping[EntryId, str],
    said: Mapping[EntryId, str],
    last: Mapping[EntryId, str],
) -> Iterator[tuple[Entry, str, str | None]]:
    """Yield each label that is new or changed compared to the file.

    Shape: the label's side entry, the id of the labelled record, and the current text of the label.

    `newest` maps each entry to its newest label entry. `now` are the current labels, and `said` are
    the labels in the file. `last` maps each entry to the id of its last record in the file.
    """
    for target, note in newest.items():
        if now.get(target) != said.get(target) and target in last:
            yield note, last[target], now.get(target)
