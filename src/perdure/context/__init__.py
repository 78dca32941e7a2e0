"""From a branch to a model request: messages to send, and messages to summarize. Pure."""
