"""Perform the effects of a turn: model calls, summaries, tool runs."""
