"""Requests of turns in the log: follow, answer when due, list and cancel them."""
