"""From a branch to a model request: which messages to send, and which to summarize. Pure."""
