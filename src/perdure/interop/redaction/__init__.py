"""Redaction: sessions without secrets, and without paths that identify a person."""
