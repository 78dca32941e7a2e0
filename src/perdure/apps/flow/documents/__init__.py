"""Workflow documents on the command line: starting and resuming them, and their outputs."""
