"""Turns on several machines: programs queue the turns, and workers run them.

See docs/guides/cluster.md.
"""
