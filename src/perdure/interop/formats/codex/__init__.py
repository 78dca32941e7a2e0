"""Codex rollouts, read."""
