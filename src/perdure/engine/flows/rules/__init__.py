"""Decisions about the next steps of a flow, from its state alone. Pure."""
