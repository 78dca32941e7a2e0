"""Flows of workflow documents: how they start from a file, their agents and their outputs."""
