"""Find sessions by id or prefix, their scratch directories, and entries across a store."""
