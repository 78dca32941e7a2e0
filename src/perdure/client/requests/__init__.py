"""Requests for turns in the log: follow them, start their turns when due, list and cancel them."""
