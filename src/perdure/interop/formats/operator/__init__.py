"""Operator's session files."""
