"""The write-ahead log of the file, what was added to it, and which namespace that belongs to."""
