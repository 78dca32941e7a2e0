"""Turn a branch into a model request: choose the messages to send and to summarize. Pure."""
