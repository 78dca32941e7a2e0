"""Hooks: a program observes, changes, blocks or supplies what a session is about to do."""
