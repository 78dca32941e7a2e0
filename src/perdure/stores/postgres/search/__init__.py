"""Full text in a PostgreSQL database: an index beside the log that follows it, behind a mark."""
