"""Bounds on outside input: limits, reading of files up to a limit, guarded callbacks."""
