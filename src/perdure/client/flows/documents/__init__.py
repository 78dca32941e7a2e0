"""Flows that run workflow documents: begun from a file, worked on by its agents, their outputs."""
