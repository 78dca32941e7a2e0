"""Strict reading of YAML, into nodes with lines or declared types, and deterministic writing."""
