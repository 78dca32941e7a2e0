"""Paths that a model gives, walked inside a jail."""
