"""Workflow documents on the command line: start, resume, outputs."""
