"""The search service of the stores, which searches index rows, and its tables for SQLite."""
