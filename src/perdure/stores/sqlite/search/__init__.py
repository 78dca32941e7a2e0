"""The search index over one database: the log it reads, its tables, and its threads."""
