"""Redact sessions: remove secrets, and paths that identify a person."""
