"""The store in memory: only one process can use it, and it writes nothing to disk."""
