"""Requests of turns in the log: followed, answered when they are due, listed and cancelled."""
