"""Sets the author of a tool result that another program appended without an author.

If the running agent made a tool call, the user can send the result, because the ADK finds the call
by its id. If another author made the call, the result must have the same author, because the ADK
quotes all events of other authors as text.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.adk.events import Event


class Callers:
    """Collects the authors of tool calls, and sets the author of tool results without an author."""

    def __init__(self) -> None:
        self._authors: dict[str, str] = {}
        self._unknown: set[str] = set()

    def add(self, event: Event, *, is_said: bool, is_unsigned: bool) -> None:
        """Add the tool calls of `event`; set the author of a result that has no author.

        `is_said` is True if another program wrote the event. `is_unsigned` is True if the event is
        a tool result without an author; the result gets the author of its call.
        """
        for call in event.get_function_calls():
            if call.id:
                self._authors[call.id] = event.author if is_said else "user"
        if is_unsigned:
            ids = [result.id for result in event.get_function_responses()]
            found = {self._authors[id] for id in ids if id in self._authors}
            if found:
                event.author = "user" if "user" in found else min(found)
            if any(id not in self._authors for id in ids):
                self._unknown.add(event.id)

    def has_calls_of(self, events: Iterable[Event]) -> bool:
        """Return False if the tool call, and so the author, of a result in `events` is unknown."""
        return all(event.id not in self._unknown for event in events)
