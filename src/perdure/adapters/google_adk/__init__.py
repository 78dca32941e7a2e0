"""Sessions and memory of Google's Agent Development Kit; needs the extra ``google-adk``.

    store = perdure.blocking.open("sqlite:///agents.db")
    runner = Runner(app_name="app", agent=agent, session_service=PerdureSessionService(store))

docs/guides/google-adk.md has the details.
"""

from __future__ import annotations

from perdure.adapters.google_adk.memory_service import PerdureMemoryService
from perdure.adapters.google_adk.migration import copy_sessions
from perdure.adapters.google_adk.session_service import PerdureSessionService

__all__ = ["PerdureMemoryService", "PerdureSessionService", "copy_sessions"]
