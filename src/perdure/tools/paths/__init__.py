"""Paths that a model gives, resolved inside a jail."""
