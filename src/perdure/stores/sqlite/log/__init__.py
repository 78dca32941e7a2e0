"""The write-ahead log of the file, its new entries, and their namespaces."""
