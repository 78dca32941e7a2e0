"""The store in memory: one process, nothing on disk."""
