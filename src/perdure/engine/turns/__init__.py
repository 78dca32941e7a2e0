"""Turns: a pure machine, the runner that performs its effects, and recovery."""
