"""Sessions of the OpenAI Agents SDK in a store; needs the extra ``openai-agents``.

    store = perdure.blocking.open("sqlite:///agents.db")
    session = PerdureSession("user-1", store)
    result = await Runner.run(agent, "Hello", session=session)

docs/guides/openai-agents.md has the details.
"""

from __future__ import annotations

from perdure.adapters.openai_agents.migration import copy_session, import_sqlite
from perdure.adapters.openai_agents.session import PerdureSession

__all__ = ["PerdureSession", "copy_session", "import_sqlite"]
