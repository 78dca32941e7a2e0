"""Hooks: where a program looks at, changes, blocks or supplies what a session is about to do."""
