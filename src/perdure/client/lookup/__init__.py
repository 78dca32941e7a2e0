"""Find sessions by id, prefix or file, and find their scratch directories and entries."""
