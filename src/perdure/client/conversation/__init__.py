"""The parts of a session's handle: its context, appending to it, its agent, its hooks."""
