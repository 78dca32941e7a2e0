"""Memory of an agent across sessions: recall, episodes and facts, derived from the log."""
