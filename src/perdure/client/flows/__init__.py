"""Flows as programs use them: begun, run, answered, watched."""
