"""Bounds on outside input: limits, bounded reading of files, guarded callbacks."""
