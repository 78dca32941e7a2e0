"""Secrets: their detection, references by name, and masking."""
