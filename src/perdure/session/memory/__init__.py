"""Memory across sessions: the entries of episodes and facts, and the fold of facts."""
