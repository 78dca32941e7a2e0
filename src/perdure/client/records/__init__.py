"""Statistics of a store, read from its log: tool calls, token usage, activity, edited files."""
