"""What an agent remembers across sessions: recall, episodes and facts, derived from the log."""
