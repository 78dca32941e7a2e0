"""Performing the effects of a turn: calls of a model, summaries, runs of tools."""
