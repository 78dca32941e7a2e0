"""Turns: a state machine without side effects, the runner that does its effects, and recovery."""
