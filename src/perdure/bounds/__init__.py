"""Bounds on outside input: limits, and files read within them."""
