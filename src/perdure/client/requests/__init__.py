"""Requests for turns that are in the log: follow, list and cancel them, start turns when due."""
