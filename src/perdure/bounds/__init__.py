"""Bounds on what comes from outside: limits, files read within them, guarded callbacks."""
