"""Inline media: bytes that are not in a log yet."""
