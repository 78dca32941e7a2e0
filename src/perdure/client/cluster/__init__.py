"""Turns on several machines: queued by programs, run by workers. See docs/guides/cluster.md."""
