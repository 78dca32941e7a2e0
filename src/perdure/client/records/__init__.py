"""Figures of a store that are read from its log: tool calls, usage, activity, edited files."""
