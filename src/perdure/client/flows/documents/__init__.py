"""Flows of workflow documents: their start from a file, their agents, and their outputs."""
