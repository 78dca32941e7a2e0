"""Secrets: what they look like, how they are named instead of written, and how they stay hidden."""
