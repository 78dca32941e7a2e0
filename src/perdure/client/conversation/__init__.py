"""The parts of a session's handle: the context, the append operations, the agent, the hooks."""
