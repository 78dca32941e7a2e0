"""Decisions about the next steps of a flow, made from its state alone. Pure."""
