"""Find sessions by id or prefix, the scratch directories of sessions, and entries in a store."""
