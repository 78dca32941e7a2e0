"""The cluster service of a PostgreSQL store, and the liveness of workers."""
