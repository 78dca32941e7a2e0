"""`perdure.event_types`: one class for each type of durable event, for use in ``match``.

For example, the class of ``agent:tool_call`` is `AgentToolCall`; each class is a subclass of
`perdure.Event`. Type checkers read ``event_types.pyi``, which scripts/make_event_docs.py writes.
"""

from __future__ import annotations

from perdure.events.projection import TYPES
from perdure.events.types import class_of

globals().update({known.__name__: known for known in map(class_of, TYPES)})
