"""Statistics of a store, read from its log: tool calls, usage, activity, edited files."""
