"""Exports of opencode, read."""
