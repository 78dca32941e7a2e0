"""Agents that invoke other agents; each invocation runs in a session of its own."""
