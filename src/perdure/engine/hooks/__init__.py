"""Hooks: a program observes, changes, blocks or replaces the next action of a session."""
